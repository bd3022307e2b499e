"""Is a transform, a tracer or a mode active? The questions that only torch's private names answer.

An op asks before it takes the short way: most calls are plain, and whoever traces instead of
running is served by `_operator`. No other file uses a private name of torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

_has_transforms = torch._C._are_functorch_transforms_active
_has_modes = torch._C._len_torch_dispatch_stack
_has_autocast = torch._C._is_any_autocast_enabled
_is_older_batch = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]  # no stub


def is_tracing() -> bool:
    """Whether `torch.compile` is reading this code instead of running it."""
    return torch.compiler.is_compiling()


def is_plain() -> bool:
    """Whether no transform, mode, forward-mode level or autocast is active: most calls."""
    return not (_has_transforms() or _has_modes() or _has_autocast() or forward_ad._current_level >= 0)


def is_transformed() -> bool:
    """Whether a `torch.func` transform or a forward-mode level is active."""
    return _has_transforms() or has_forward_mode()


def has_forward_mode() -> bool:
    """Whether a forward-mode level (`jvp`, dual numbers) is active."""
    return forward_ad._current_level >= 0


def has_modes() -> bool:
    """Whether a dispatch mode (fake tensors, a flop counter, `make_fx`) is active."""
    return bool(_has_modes())


@contextlib.contextmanager
def one_level_down() -> Iterator[None]:
    """Inside a Function's forward: call an operator past this level's gradient, but not past the next one's.

    A Function runs its forward without gradients of either mode. With nested transforms the
    operator still has the outer levels before it, and they would give zeros in silence.
    """
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Within, tensors are made for keeps: what is made under a transform or in inference mode dies with it.

    For tables that are made at a first call, whenever that is, and kept for all others.
    """
    with torch._C._DisableFuncTorch(), torch.inference_mode(False):
        yield


Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_traced(function: Function) -> Function:
    """What `torch.compiler.assume_constant_result` does: a tracer runs the function and does not look into it.

    By the mark that it leaves, for it loads the compiler, and importing this library would take a second more.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010  # a function has no such attribute, to pyright
    return function


def single_level() -> contextlib.AbstractContextManager[None]:
    """Inside it a Function may be applied as part of one level of `torch.func`'s transforms."""
    return enable_single_level_autograd_function()


# Torch's older vmap: `torch.autograd.grad(..., is_grads_batched=True)` still uses it, and so do
# vectorised Jacobians. Its tensors have no memory of their own and no rule for a Function.
def has_older_batch(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether one of the tensors is a batch of the older vmap."""
    for tensor in tensors:  # noqa: SIM110  # a generator costs more than the question, once a backward pass
        if tensor is not None and _is_older_batch(tensor):
            return True
    return False


def older_batches(tensors: Sequence[torch.Tensor | None]) -> tuple[int, list[torch.Tensor | None], list[int | None]]:
    """The level of the older vmap, the tensors out of their batches, and where each one's batch dimension is."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    whole = [t if t is None or not _is_older_batch(t) else torch._remove_batch_dim(t, level, -1, 0) for t in tensors]
    return level, whole, [0 if has_older_batch([tensor]) else None for tensor in tensors]


def into_older_batch(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """A tensor whose first dimension becomes the older vmap's batch again."""
    return torch._add_batch_dim(tensor, 0, level)
