"""An operator's rule for torch's legacy vmap, derived from its rule for `torch.func.vmap`.

`torch.autograd.grad(..., is_grads_batched=True)`, `gradcheck(check_batched_grad=True)` and `vectorize=True` of
`torch.autograd.functional` run a backward pass on batches of that vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..tracing import unwrap_legacy_vmap, wrap_legacy_vmap


class BatchInfo(NamedTuple):
    """The facts about a batch that a rule for `torch.func.vmap` receives."""

    batch_size: int
    randomness: str = "error"


def make_legacy_vmap_rule(vmap: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """Return an operator's rule for torch's legacy vmap: its implementation for dispatch key `Batched`.

    It unwraps one level of that vmap, calls the other rule, and wraps the results.

    Args:
        vmap: the operator's rule for `torch.func.vmap`, as `torch.library.register_vmap` takes it.
    """

    def run(*arguments: Any, **keywords: Any) -> Any:
        level, whole, dims = unwrap_legacy_vmap([one if _is_tensor(one) else None for one in _flatten(arguments)])
        size = next(one.shape[0] for one, dim in zip(whole, dims, strict=True) if one is not None and dim is not None)
        unwrapped = iter(whole)

        def unwrap(one: Any) -> Any:
            tensor = next(unwrapped)
            return tensor if _is_tensor(one) else one

        given = [_map(unwrap, argument) for argument in arguments]
        places = iter(dims)
        in_dims = tuple([_map(lambda _: next(places), argument) for argument in arguments])
        results, out_dims = vmap(BatchInfo(size), in_dims, *given, **keywords)
        if isinstance(results, torch.Tensor):
            return _wrap(results, out_dims, level)
        wrapped = [_wrap(one, dim, level) for one, dim in zip(results, out_dims, strict=True)]
        return tuple(wrapped) if isinstance(results, tuple) else wrapped

    return run


def _is_tensor(one: Any) -> bool:
    return isinstance(one, torch.Tensor)


def _flatten(arguments: Sequence[Any]) -> Iterator[Any]:
    """Yield the arguments, and instead of each list its entries."""
    for argument in arguments:
        yield from argument if isinstance(argument, list) else [argument]


def _map(function: Callable[[Any], Any], argument: Any) -> Any:
    """Apply a function to an argument; if it is a list, to each entry."""
    return [function(one) for one in argument] if isinstance(argument, list) else function(argument)


def _wrap(result: torch.Tensor, dim: int | None, level: int) -> torch.Tensor:
    return result if dim is None else wrap_legacy_vmap(result.movedim(dim, 0), level)
