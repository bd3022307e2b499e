"""Queries of torch that need its private names: is a transform, a tracer or a mode active?

An op asks before it uses the fast path: most calls are plain, and tracers are handled by `torch_side/_operator`.
No other file uses a private name of torch. Each one here has a
comment that says why no public name does, and a probe in `_probes`, which `tinsmith doctor` runs.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

# Torch has no public name for whether a transform of torch.func or a dispatch mode is active.
_has_transforms = torch._C._are_functorch_transforms_active
_has_modes = torch._C._len_torch_dispatch_stack
# Nothing public says whether what autograd saves goes through hooks: those of `torch.utils.checkpoint`, for one.
_saved_tensor_hooks = torch._C._autograd._top_saved_tensors_default_hooks  # pyright: ignore[reportAttributeAccessIssue]  # no stub
# `make_fx` and fake tensors are dispatch modes, and nothing public says which modes are active.
_mode = torch._C._get_dispatch_mode
_PROXIES, _FAKES = torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FAKE
# `torch.is_autocast_enabled` asks for one kind of device, so it would take a call for each, at every call of an op.
_has_autocast = torch._C._is_any_autocast_enabled
# `torch.jit.is_tracing` is Python around this, which costs a microsecond, and every call of an op would pay it.
_jit_tracing = torch._C._get_tracing_state
# Torch has no public name for whether a backward pass is running, in which checkpoints run a forward pass again.
_running_backward = torch._C._current_graph_task_id
# The older vmap below has no public name at all: its tensors appear in a backward pass unasked.
_is_older_batch = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]  # no stub


is_tracing = torch.compiler.is_compiling
"""Whether `torch.compile` is reading this code instead of running it."""


def assume(fact: bool) -> None:
    """Tell `torch.compile` what it cannot know of a number that comes out of a tensor, a size say.

    Raises:
        RuntimeError: it is not so.
    """
    # The underscore is not a mark of privacy: torch's guides to data-dependent sizes name this function, and no other.
    torch._check(fact)


def is_plain() -> bool:
    """Whether no transform, mode, forward-mode level, autocast or older tracer is active: most calls."""
    return not (
        _has_transforms() or _has_modes() or _has_autocast() or forward_ad._current_level >= 0 or _jit_tracing()
    )


def is_in_backward() -> bool:
    """Whether a backward pass of autograd is running."""
    return _running_backward() != -1


def is_transformed() -> bool:
    """Whether a `torch.func` transform or a forward-mode level is active."""
    return _has_transforms() or has_forward_mode()


def has_forward_mode() -> bool:
    """Whether a forward-mode level (`jvp`, dual numbers) is active."""
    # `torch.autograd.forward_ad` can enter and leave a level; only this number says that one is active.
    return forward_ad._current_level >= 0


def batch_levels(tensor: torch.Tensor) -> frozenset[int]:
    """The levels of `torch.func.vmap` over which a tensor is a batch."""
    # A batch of vmap hides its dimension, and nothing public says whether a tensor is one.
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    levels: set[int] = set()
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            levels.add(functorch.maybe_get_level(tensor))
        tensor = functorch.get_unwrapped(tensor)
    return frozenset(levels)


def innermost(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without the levels of `torch.func`. For one that none of them differentiates or maps."""
    # Compiled autograd traces this. Its tensors have no levels.
    if is_tracing():
        return tensor
    # A tensor that one level made has that level's wrapper, which an operator below it cannot read.
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def may_be_differentiated(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether somebody may ask for a derivative in one of these tensors."""
    return is_transformed() or (torch.is_grad_enabled() and any([one.requires_grad for one in tensors]))  # noqa: C419


def is_finished(arguments: Sequence[Any]) -> bool:
    """Return whether an operator called with these arguments has nothing left to do but to compute.

    Then neither autograd, a transform, a mode nor a tensor's own type wants to see the call: so it is in graphs that a
    compiler has differentiated already.
    """
    if is_tracing() or not is_plain():
        return False
    return _are_finished(arguments, torch.is_grad_enabled())


def _are_finished(arguments: Sequence[Any], is_recording: bool) -> bool:
    for one in arguments:
        # A subclass of tensors has a dispatch of its own, and a meta tensor no memory.
        if type(one) in PLAIN_TYPES:
            if one.is_meta or (is_recording and one.requires_grad):
                return False
        elif isinstance(one, torch.Tensor) or (type(one) is list and not _are_finished(one, is_recording)):
            return False
    return True


PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors with memory and without a dispatch of their own."""


def are_final(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors have memory and no dispatch of their own."""
    return all(type(one) in PLAIN_TYPES and not one.is_meta for one in tensors)


def is_jit_traced() -> bool:
    """Whether `torch.jit.trace` is at work, which writes down torch's own operations alone."""
    return _jit_tracing() is not None


def without_torch_function() -> contextlib.AbstractContextManager[None]:
    """Return a context in which neither a mode nor a tensor's own type sees what is asked of it, as its shape."""
    # torch's guide to extending it names `DisableTorchFunctionSubclass`, which leaves the modes; nothing public
    # disables both.
    return torch._C.DisableTorchFunction()


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place. Raises RuntimeError for one made in inference mode."""
    # Autograd's own check of saved tensors compares this number; nothing public tells it.
    return tensor._version


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of `FakeTensorMode`, which has no memory, although its device is a real one."""
    # The type has no public name. Without torch's module for it there are none.
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


def has_modes() -> bool:
    """Whether a dispatch mode (fake tensors, a flop counter, `make_fx`) is active."""
    return bool(_has_modes())


def has_saved_tensor_hooks() -> bool:
    """Return whether hooks get what autograd saves. They may run a function again instead of saving anything."""
    return _saved_tensor_hooks(False) is not None


def is_recorded() -> bool:
    """Return whether `make_fx` records what runs."""
    return _mode(_PROXIES) is not None


def outside_recording() -> contextlib.AbstractContextManager[Any]:
    """Within, nothing is recorded: tensors made there are constants of the recorded function."""
    if not is_recorded():
        return contextlib.nullcontext()
    # Imported late: it loads the symbolic shapes, and sympy with them, which `make_fx` has loaded by now.
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    return disable_proxy_modes_tracing()


def is_linearized() -> bool:
    """Return whether forward mode is recorded on real tensors, as `torch.func.linearize` does.

    It folds what is known into constants when the recorded function is called for the first time, not before.
    """
    return has_forward_mode() and is_recorded() and _mode(_FAKES) is None


@contextlib.contextmanager
def one_level_down() -> Iterator[None]:
    """Inside a Function's forward: call an operator past this level's gradient, but not past the next one's.

    A Function runs its forward without gradients of either mode. With nested transforms the
    operator still has the outer levels before it, and they would silently give zeros.
    """
    # `torch.enable_grad` has no public twin for forward mode, and the dispatcher's guard has no public name.
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


@contextlib.contextmanager
def outside_transforms() -> Iterator[None]:
    """Within, tensors are made for keeps: what is made under a transform or in inference mode dies with it.

    For tables that are made at a first call, whenever that is, and kept for all others.
    """
    # `torch.inference_mode(False)` is the public half; nothing public suspends torch.func.
    with torch._C._DisableFuncTorch(), torch.inference_mode(False):
        yield


def reshape_result(result: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Give a new tensor, which nobody else has, another shape without making it a view. Differentiable.

    In-place operations on a view go through its base, and FSDP warns of modules that return one.
    """
    # The operator of torch's own reshapes of new memory, such as those in `linear`; it has no public name.
    return torch.ops.aten._unsafe_view(result.contiguous(), shape)


Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_traced(function: Function) -> Function:
    """What `torch.compiler.assume_constant_result` does: a tracer runs the function and does not look into it.

    By the mark that it leaves, for it loads the compiler, and importing this library would take a second more.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010  # a function has no such attribute, to pyright
    return function


class Transforms(NamedTuple):
    """Levels of `torch.func` by kind."""

    batches: int
    gradients: int
    tangents: int


@constant_when_traced
def transforms_in_graph() -> Transforms:
    """The levels of `torch.func` in which a compiler traces this code."""
    # While torch.compile reads code under a transform, that transform is active; nothing public lists them.
    kinds = [one.key() for one in torch._C._functorch.get_interpreter_stack() or ()]  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    kind = torch._C._functorch.TransformType  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    return Transforms(kinds.count(kind.Vmap), kinds.count(kind.Grad), kinds.count(kind.Jvp))


class SingleLevelFunction(torch.autograd.function._SingleLevelFunction):
    """An autograd Function that is one level's gradient of an operator. Apply it by `apply_at_one_level`.

    An operator meets the levels of `torch.func` one by one, innermost first, each time at its autograd
    key. A public Function refuses to be applied there, since it would go through all levels by itself,
    and so does `torch.library.register_autograd`, which makes one and has no forward mode either.
    """

    # Only the public Function has this method, which compiled autograd calls.
    _compiled_autograd_key = torch.autograd.Function._compiled_autograd_key


def apply_at_one_level(function: type[SingleLevelFunction], *arguments: Any) -> Any:
    """Apply `function` as the innermost level's gradient, while transforms of `torch.func` may be active.

    Torch refuses that unless it is asked for.
    """
    with enable_single_level_autograd_function():
        return function.apply(*arguments)  # pyright: ignore[reportAttributeAccessIssue]  # of torch's C


def plain_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` for code that has asked `is_plain` already.

    Before torch 2.14 `apply` is Python that looks for transforms, for 1 us a call; this is the C function below it.
    """
    return super(torch.autograd.Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]  # of torch's C


class _Namespace(torch._ops._OpNamespace):
    """A namespace of `torch.ops` that says more of an operator that is not there than that it is not."""

    # Operators are pickled under this module name.
    __module__ = torch._ops._OpNamespace.__module__

    def __init__(self, name: str, missing: Callable[[str], Exception | None]) -> None:
        super().__init__(name)
        self._missing = missing

    def __getattr__(self, op_name: str) -> Any:
        try:
            return super().__getattr__(op_name)
        except AttributeError:
            error = vars(self)["_missing"](op_name)
            if error is None:
                raise
            raise error from None


def answer_missing(name: str, missing: Callable[[str], Exception | None]) -> None:
    """Have `torch.ops.<name>` raise what `missing` makes of the name of an operator that is not there.

    Who loads an exported graph asks there for its operators, and nothing public answers in between.
    """
    setattr(torch.ops, name, _Namespace(name, missing))


# Torch's older vmap: `torch.autograd.grad(..., is_grads_batched=True)` still uses it, and so do
# vectorised Jacobians and Hessians. Its tensors have no memory of their own and no rule for a Function.
def has_older_batch(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether one of the tensors is a batch of the older vmap."""
    for tensor in tensors:  # noqa: SIM110  # a generator costs more than the question, once a backward pass
        if tensor is not None and _is_older_batch(tensor):
            return True
    return False


def older_batches(tensors: Sequence[torch.Tensor | None]) -> tuple[int, list[torch.Tensor | None], list[int | None]]:
    """The level of the older vmap, the tensors out of their batches, and where each one's batch dimension is."""
    level = max(_older_level(tensor) for tensor in tensors if tensor is not None and _is_older_batch(tensor))
    whole = [t if t is None or not _is_older_batch(t) else torch._remove_batch_dim(t, level, -1, 0) for t in tensors]
    return level, whole, [0 if has_older_batch([tensor]) else None for tensor in tensors]


def _older_level(batch: torch.Tensor) -> int:
    """The innermost level of the older vmap that a tensor is a batch of.

    Torch counts the levels a thread, and the backward pass of a GPU's tensors runs in a thread that counts none. So the
    tensor is asked: out of a batch that it is not, it comes with a first dimension of whatever size one says.
    """
    for level in range(_OLDER_LEVELS, 0, -1):
        sizes = {torch._remove_batch_dim(batch, level, size, 0).shape[0] for size in (1, 2)}
        if len(sizes) == 1:
            return level
    raise AssertionError("a batch has a level")


_OLDER_LEVELS = 64
"""As many as torch has (`kVmapNumLevels`)."""


def into_older_batch(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """A tensor whose first dimension becomes the older vmap's batch again."""
    return torch._add_batch_dim(tensor, 0, level)


def is_distributed(tensors: Sequence[Any]) -> bool:
    """Whether one of the tensors is a DTensor. Without torch's module for DTensors there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any([isinstance(tensor, module.DTensor) for tensor in tensors])  # noqa: C419
