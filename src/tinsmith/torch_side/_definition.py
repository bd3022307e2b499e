"""Definitions of torch operators, each with rules for autograd and for both vmaps of torch.

The rule for torch's legacy vmap is derived from that for `torch.func.vmap`. `torch.autograd.grad(...,
is_grads_batched=True)`, `gradcheck(check_batched_grad=True)` and `vectorize=True` of `torch.autograd.functional` run a
backward pass on batches of the legacy vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.library import Library, register_fake, register_vmap

from ..tracing import unwrap_legacy_vmap, wrap_legacy_vmap

NAMESPACE = "tinsmith"
DEFINED: set[str] = set()
"""The names of the operators that have been defined. For these, torch's own error about a missing one is kept."""
_LIBRARY = Library(NAMESPACE, "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag,)
# Torch 2.6 has no such tag; `torch.compile` captures any operator then.
_UNCAPTURABLE_TAGS = (*_TAGS, *filter(None, [getattr(torch.Tag, "cudagraph_unsafe", None)]))


def define_operator(
    name: str, schema: str, run: Any, fake: Any, autograd: Any, vmap: Any, *, is_capturable: bool = True
) -> Any:
    """Define `torch.ops.tinsmith.<name>` with its rules for autograd's dispatch key and for both vmaps of torch.

    Args:
        name: the operator's name, without namespace.
        schema: the declaration of its arguments and results.
        run: the implementation for dispatch keys below autograd's.
        fake: the implementation for fake tensors.
        autograd: the implementation for autograd's dispatch key.
        vmap: the rule for `torch.func.vmap`, from which that for torch's legacy vmap is derived.
        is_capturable: whether a CUDA graph may contain it. Otherwise `torch.compile(mode="reduce-overhead")` runs it
            between graphs.
    """
    qualified = f"{NAMESPACE}::{name}"
    DEFINED.add(name)
    _LIBRARY.define(f"{name}{schema}", tags=_TAGS if is_capturable else _UNCAPTURABLE_TAGS)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, autograd, "Autograd")
    register_fake(qualified, fake, lib=_LIBRARY)
    register_vmap(qualified, vmap, lib=_LIBRARY)
    _LIBRARY.impl(name, _make_legacy_vmap_rule(vmap), "Batched")
    return getattr(getattr(torch.ops, NAMESPACE), name).default


class BatchInfo(NamedTuple):
    """The facts about a batch that a rule for `torch.func.vmap` receives."""

    batch_size: int
    randomness: str = "error"


def _make_legacy_vmap_rule(vmap: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """Return an operator's implementation for dispatch key `Batched`, made from its rule for `torch.func.vmap`.

    It unwraps one level of the legacy vmap, calls that rule, and wraps the results.
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
