"""Queries of torch that need its private names: is a transform, a tracer or a mode active?

An op asks before it takes the fast path. Most calls are plain; tracers and transforms are handled by
`torch_side/_operator`. No other file uses a private name of torch. Each one here has a comment that says why no public
name does the same, and a probe in `_probes`, which `tinsmith doctor` runs.
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
# The public `torch.cuda.current_stream` builds a Stream object, which takes longer than all else that a launch asks of
# torch. A build of torch without CUDA does not have it.
_raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
# The legacy vmap below has no public name at all, and its tensors may reach any backward pass.
_is_legacy_batch = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]  # no stub


is_tracing = torch.compiler.is_compiling
"""Return True if `torch.compile` is tracing the calling code instead of running it."""


def assume(fact: bool) -> None:
    """Tell `torch.compile` a fact that it cannot derive, such as the range of a size that depends on data.

    Raises:
        RuntimeError: the fact is false.
    """
    # The underscore is not a mark of privacy: torch's guides to data-dependent sizes name this function, and no other.
    torch._check(fact)


def is_plain() -> bool:
    """Return True if no transform, dispatch mode, forward-mode level, autocast or `torch.jit.trace` is active.

    Most calls of an op are plain.
    """
    return not (
        _has_transforms() or _has_modes() or _has_autocast() or forward_ad._current_level >= 0 or _jit_tracing()
    )


def find_current_stream(device: int) -> int:
    """Return the handle of torch's current stream on a GPU; 0 is CUDA's legacy default stream."""
    return torch.cuda.current_stream(device).cuda_stream if _raw_stream is None else _raw_stream(device)


def find_captured_graph() -> torch.cuda.CUDAGraph | None:
    """Return the CUDA graph that is being captured on torch's current stream; None if torch does not tell.

    Torch does since 2.13. Call it only during a capture.
    """
    # Not documented: torch.cond calls it to add a node to the graph.
    find = getattr(torch.cuda.CUDAGraph, "get_currently_capturing_graph", None)
    graph = None if find is None else find()
    # A wrapper that is not the user's own object would not live as long as the graph.
    return graph if isinstance(graph, torch.cuda.CUDAGraph) else None


def is_in_backward() -> bool:
    """Return True if a backward pass of autograd is running."""
    return _running_backward() != -1


def is_transformed() -> bool:
    """Return True if a `torch.func` transform or a forward-mode level is active."""
    return _has_transforms() or has_forward_mode()


def has_forward_mode() -> bool:
    """Return True if a forward-mode level (`jvp`, dual numbers) is active."""
    # `torch.autograd.forward_ad` can enter and leave a level; only this number says that one is active.
    return forward_ad._current_level >= 0


def is_view(tensor: torch.Tensor) -> bool:
    """Return True if autograd treats a tensor as a view of another one."""
    # Nothing public says so: a slice and the result of `detach` share memory with another tensor alike.
    return tensor._is_view()


def find_batch_levels(tensor: torch.Tensor) -> frozenset[int]:
    """Return the levels of `torch.func.vmap` at which a tensor is batched."""
    # A batch of vmap hides its dimension, and nothing public says whether a tensor is one.
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    levels: set[int] = set()
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            levels.add(functorch.maybe_get_level(tensor))
        tensor = functorch.get_unwrapped(tensor)
    return frozenset(levels)


def unwrap_levels(tensor: torch.Tensor) -> torch.Tensor:
    """Unwrap a tensor from all levels of `torch.func`.

    Only for a tensor that none of these levels differentiates or maps over.
    """
    # Compiled autograd traces this. Its tensors have no levels.
    if is_tracing():
        return tensor
    # A tensor that one level made has that level's wrapper, which an operator below it cannot read.
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def may_be_differentiated(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if a transform is active or autograd records one of these tensors."""
    return is_transformed() or (torch.is_grad_enabled() and any([one.requires_grad for one in tensors]))  # noqa: C419


def can_run_directly(arguments: Sequence[Any]) -> bool:
    """Return True if an operator called with these arguments can compute at once, without further dispatch.

    That is so if neither autograd, a transform, a mode nor a tensor subclass has to see the call, as in graphs that a
    compiler has already differentiated.
    """
    if is_tracing() or not is_plain():
        return False
    return _can_all_run_directly(arguments, torch.is_grad_enabled())


def _can_all_run_directly(arguments: Sequence[Any], is_recording: bool) -> bool:
    for one in arguments:
        # A subclass of tensors has a dispatch of its own, and a meta tensor no memory.
        if type(one) in PLAIN_TYPES:
            if one.is_meta or (is_recording and one.requires_grad):
                return False
        elif isinstance(one, torch.Tensor) or (type(one) is list and not _can_all_run_directly(one, is_recording)):
            return False
    return True


PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors with memory and without a dispatch of their own."""


def are_final(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if all tensors have memory and are no subclass with a dispatch of its own."""
    return all(type(one) in PLAIN_TYPES and not one.is_meta for one in tensors)


def is_jit_traced() -> bool:
    """Return True if `torch.jit.trace` is running, which records torch's own operations only."""
    return _jit_tracing() is not None


def disable_torch_function() -> contextlib.AbstractContextManager[None]:
    """Return a context in which reading a property of a tensor, such as its shape, calls no `__torch_function__`.

    Neither a mode nor the tensor's own type sees the query.
    """
    # torch's guide to extending it names `DisableTorchFunctionSubclass`, which leaves the modes; nothing public
    # disables both.
    return torch._C.DisableTorchFunction()


def get_version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place: autograd's version counter.

    Raises:
        RuntimeError: the tensor was made in inference mode, which counts no versions.
    """
    # Autograd's own check of saved tensors compares this number; nothing public tells it.
    return tensor._version


def is_fake(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is one of `FakeTensorMode`: it has no memory, although its device is a real one."""
    # The type has no public name. Without torch's module for it there are none.
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


def has_modes() -> bool:
    """Return True if a dispatch mode (fake tensors, a flop counter, `make_fx`) is active."""
    return bool(_has_modes())


def has_saved_tensor_hooks() -> bool:
    """Return True if hooks receive the tensors that autograd saves.

    Such hooks may run a function again instead of saving anything, as those of `torch.utils.checkpoint` do.
    """
    return _saved_tensor_hooks(False) is not None


def is_recorded() -> bool:
    """Return True if `make_fx` is recording the operations that run."""
    return _mode(_PROXIES) is not None


def suspend_recording() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which `make_fx` records nothing.

    Tensors that are made there become constants of the recorded function.
    """
    if not is_recorded():
        return contextlib.nullcontext()
    # Imported late: it loads the symbolic shapes, and sympy with them, which `make_fx` has loaded by now.
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    return disable_proxy_modes_tracing()


def is_linearized() -> bool:
    """Return True if forward mode is being recorded on real tensors, as `torch.func.linearize` does.

    `linearize` folds known values into constants only when the recorded function is called for the first time.
    """
    return has_forward_mode() and is_recorded() and _mode(_FAKES) is None


@contextlib.contextmanager
def dispatch_below_autograd() -> Iterator[None]:
    """Enter a context in which operators skip autograd at the current level of `torch.func`, but at no outer level.

    Used in the forward of a Function. Torch runs it with gradients of both modes disabled. With nested transforms an
    operator called there still has to pass the outer levels, and without this context those would silently compute
    zeros.
    """
    # `torch.enable_grad` has no public twin for forward mode, and the dispatcher's guard has no public name.
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


@contextlib.contextmanager
def suspend_transforms() -> Iterator[None]:
    """Enter a context without transforms and inference mode, to make tensors that later calls can use.

    A tensor that is made under a transform or in inference mode cannot be used after it ends. This is for tables that
    are made at an op's first call, which may be inside a transform.
    """
    # `torch.inference_mode(False)` is the public half; nothing public suspends torch.func.
    with torch._C._DisableFuncTorch(), torch.inference_mode(False):
        yield


def reshape_result(result: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Reshape a new tensor, which nothing else refers to, without making it a view. Differentiable.

    In-place operations on a view go through its base, and FSDP warns of modules that return a view.
    """
    # The operator of torch's own reshapes of new memory, such as those in `linear`; it has no public name.
    return torch.ops.aten._unsafe_view(result.contiguous(), shape)


Function = TypeVar("Function", bound=Callable[..., Any])


def constant_when_traced(function: Function) -> Function:
    """Decorate a function that `torch.compile` shall call, not trace. Its result becomes a constant of the graph.

    `torch.compiler.assume_constant_result` does the same. This sets the mark that it leaves, since calling it would
    load the compiler, and importing this library would take a second longer.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010  # a function has no such attribute, to pyright
    return function


class Transforms(NamedTuple):
    """The number of active levels of `torch.func` of each kind: `vmap`, gradients and tangents."""

    batches: int
    gradients: int
    tangents: int


@constant_when_traced
def count_transforms() -> Transforms:
    """Count the levels of `torch.func` inside which a compiler is tracing this code, by kind."""
    # While torch.compile reads code under a transform, that transform is active; nothing public lists them.
    kinds = [one.key() for one in torch._C._functorch.get_interpreter_stack() or ()]  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    kind = torch._C._functorch.TransformType  # pyright: ignore[reportAttributeAccessIssue]  # no stub
    return Transforms(kinds.count(kind.Vmap), kinds.count(kind.Grad), kinds.count(kind.Jvp))


class SingleLevelFunction(torch.autograd.function._SingleLevelFunction):
    """An autograd Function that is the gradient of an operator at one level of `torch.func`; see `apply_at_one_level`.

    An operator passes the levels of `torch.func` one by one, innermost first, and at each its autograd key is called. A
    public Function cannot be applied there, since it would go through all levels by itself. Neither can
    `torch.library.register_autograd`, which makes such a Function and has no forward mode either.
    """

    # Only the public Function has this method, which compiled autograd calls.
    _compiled_autograd_key = torch.autograd.Function._compiled_autograd_key


def apply_at_one_level(function: type[SingleLevelFunction], *arguments: Any) -> Any:
    """Apply a Function as the gradient of the innermost level only, also while transforms of `torch.func` are active.

    Torch refuses to do that by default.
    """
    with enable_single_level_autograd_function():
        return function.apply(*arguments)  # pyright: ignore[reportAttributeAccessIssue]  # of torch's C


def get_unchecked_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return the C function below `function.apply`, for callers that have already checked `is_plain`.

    Before torch 2.14 `apply` is Python code that looks for transforms, which takes 1 us per call.
    """
    return super(torch.autograd.Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]  # of torch's C


class _Namespace(torch._ops._OpNamespace):
    """A namespace of `torch.ops` that raises an error of our own for a missing operator.

    `missing` makes the error from the operator's name; it returns None to keep torch's error.
    """

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


def explain_missing_operators(name: str, missing: Callable[[str], Exception | None]) -> None:
    """Make `torch.ops.<name>` raise the error that `missing` returns for the name of an operator that does not exist.

    If `missing` returns None, torch's own error is raised. Loading an exported graph looks up its operators in
    `torch.ops`, and no public hook can intercept that.
    """
    setattr(torch.ops, name, _Namespace(name, missing))


# Torch's legacy vmap: `torch.autograd.grad(..., is_grads_batched=True)` still uses it, and so do
# vectorized Jacobians and Hessians. Its tensors have no memory of their own and no rule for a Function.
def has_legacy_batch(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Return True if one of the tensors is a batch of torch's legacy vmap (`is_grads_batched=True`)."""
    for tensor in tensors:  # noqa: SIM110  # a generator costs more than the question, once a backward pass
        if tensor is not None and _is_legacy_batch(tensor):
            return True
    return False


def unwrap_legacy_vmap(
    tensors: Sequence[torch.Tensor | None],
) -> tuple[int, list[torch.Tensor | None], list[int | None]]:
    """Unwrap tensors from the innermost level of torch's legacy vmap (`is_grads_batched=True`).

    Returns:
        The level, the unwrapped tensors, and the batch dimension of each: 0, or None for a tensor without a batch.
    """
    level = max(_find_legacy_level(tensor) for tensor in tensors if tensor is not None and _is_legacy_batch(tensor))
    whole = [t if t is None or not _is_legacy_batch(t) else torch._remove_batch_dim(t, level, -1, 0) for t in tensors]
    return level, whole, [0 if has_legacy_batch([tensor]) else None for tensor in tensors]


def _find_legacy_level(batch: torch.Tensor) -> int:
    """Return the innermost level of torch's legacy vmap at which a tensor is batched.

    Torch counts these levels per thread, and the backward pass of tensors on a GPU runs in a thread whose count is 0.
    So the levels are tried: unwrapped from a level at which it is not batched, a tensor gets a first dimension of
    whatever size is passed.
    """
    for level in range(_LEGACY_LEVELS, 0, -1):
        sizes = {torch._remove_batch_dim(batch, level, size, 0).shape[0] for size in (1, 2)}
        if len(sizes) == 1:
            return level
    raise AssertionError("a batched tensor belongs to a level of vmap")


_LEGACY_LEVELS = 64
"""The number of levels that torch's legacy vmap has (`kVmapNumLevels`)."""


def wrap_legacy_vmap(tensor: torch.Tensor, level: int) -> torch.Tensor:
    """Wrap a tensor as a batch of torch's legacy vmap at this level, over its first dimension."""
    return torch._add_batch_dim(tensor, 0, level)


def is_distributed(tensors: Sequence[Any]) -> bool:
    """Return True if one of the tensors is a DTensor."""
    # While torch's module for DTensors is not imported there are none.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any([isinstance(tensor, module.DTensor) for tensor in tensors])  # noqa: C419
