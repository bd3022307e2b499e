"""Probes: checks of the private behavior of torch that this library relies on.

`_torch_state` alone uses torch's private names, and says why it needs each. Each probe here calls its functions as an
op does, under torch's public transforms and modes. So a probe fails if torch has removed a private name, and also if
torch has changed what the name means. No engine is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.library import Library, register_fake, register_vmap

from ..engines import Probe
from . import _torch_state as tracing

_CUBE = "probe_of_cube"


@dataclass(frozen=True)
class _Fact:
    """A fact about torch: `check` returns True if it holds, and `breaks` says what goes wrong if it does not."""

    name: str
    check: Callable[[], bool]
    breaks: str


_FACTS: list[_Fact] = []


def _fact(name: str, breaks: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Add a fact, which the decorated function checks."""

    def add(check: Callable[[], bool]) -> Callable[[], bool]:
        _FACTS.append(_Fact(name, check, breaks))
        return check

    return add


def torch_probes() -> tuple[Probe, ...]:
    """Check every private fact that this library relies on, in the installed torch. Return one probe for each.

    Example:
        >>> [probe.name for probe in torch_probes() if not probe.ok]
        []
    """
    return tuple(map(_probe, _FACTS))


def _probe(fact: _Fact) -> Probe:
    try:
        # torch's own forward mode warns of functions that it calls.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            holds = fact.check()
    except Exception as error:  # noqa: BLE001  # a fact that fails in whatever way has changed
        return Probe(fact.name, "torch", False, f"{fact.breaks} ({type(error).__name__}: {error})")
    return Probe(fact.name, "torch", holds, "" if holds else fact.breaks)


# What is active ---------------------------------------------------------------------------------
def _collect_answers(question: Callable[[], Any]) -> list[bool]:
    """Call `question` in plain code, then inside `vmap`, `grad` and `jvp`. Return the four answers in this order."""
    answers = [bool(question())]

    def ask(x: torch.Tensor) -> torch.Tensor:
        answers.append(bool(question()))
        return x.sum()

    x = torch.ones(1, 1)
    vmap(ask)(x)
    grad(ask)(x)
    jvp(ask, (x,), (x,))
    return answers


@_fact(
    "an active transform of torch.func is detected",
    "an op would run as a plain call inside torch.func, with wrong gradients",
)
def _transforms_are_seen() -> bool:
    plain = _collect_answers(lambda: not tracing.is_plain())
    return plain == _collect_answers(tracing.is_transformed) == [False, True, True, True]


@_fact(
    "an active dispatch mode is detected", "fake tensors and make_fx would reach an engine, with no memory to give it"
)
def _modes_are_seen() -> bool:
    # Imported late: `import tinsmith` does not need it.
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        inside = tracing.has_modes() and not tracing.is_plain()
    return inside and not tracing.has_modes() and tracing.is_plain()


@_fact(
    "a tensor of FakeTensorMode is recognized", "a layer on fields would copy from address 0, which ends the process"
)
def _fakes_are_seen() -> bool:
    # Imported late: `import tinsmith` does not need it.
    from torch.fx.experimental.proxy_tensor import make_fx

    seen: list[bool] = []

    def ask(x: torch.Tensor) -> torch.Tensor:
        seen.append(tracing.is_fake(x))
        return x + 1

    x = torch.ones(1)
    make_fx(ask, tracing_mode="fake")(x)
    return seen == [True] and not tracing.is_fake(x)


@_fact(
    "queries of a tensor's properties can be hidden from modes",
    "a mode of torch.overrides would see an op read shapes and dtypes before it sees the op",
)
def _questions_are_unseen() -> bool:
    # Imported late: `import tinsmith` does not need it.
    from torch.overrides import TorchFunctionMode

    seen: list[Any] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Mode():
        with tracing.disable_torch_function():
            hidden = x.shape == (1,) and not seen
        return bool(hidden) and x.shape == (1,) and len(seen) == 1


@_fact("an assumption for torch.compile is checked", "a graph could go on with a size that it has no memory for")
def _assumptions_are_checked() -> bool:
    tracing.assume(True)
    try:
        tracing.assume(False)
    except RuntimeError:
        return True
    return False


@_fact("active autocast is detected", "autocast would hand half-precision tensors to kernels")
def _autocast_is_seen() -> bool:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = tracing.is_plain()
    return tracing.is_plain() and not inside


@_fact(
    "an active forward-mode level is detected",
    "forward-mode derivatives would be lost: the tangent of an op would be zero",
)
def _forward_mode_is_seen() -> bool:
    with forward_ad.dual_level():
        inside = tracing.has_forward_mode() and not tracing.is_plain()
    return inside and not tracing.has_forward_mode()


@_fact(
    "hooks on saved tensors are detected",
    "a layer that torch.utils.checkpoint runs again with other values would return the gradient of those",
)
def _saved_tensor_hooks_are_seen() -> bool:
    with torch.autograd.graph.save_on_cpu():
        inside = tracing.has_saved_tensor_hooks()
    return inside and not tracing.has_saved_tensor_hooks()


@_fact(
    "torch.func.linearize is detected", "it would give the derivative of Python values and fields that changed after it"
)
def _linearization_is_seen() -> bool:
    seen: list[bool] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        seen.append(tracing.is_linearized())
        return 2 * x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.linearize(double, torch.ones(1))
    return seen[-1] and not tracing.is_recorded()


@_fact(
    "a running backward pass is detected",
    "a layer with a state would not warn when torch.utils.checkpoint runs it again from another state",
)
def _backward_passes_are_seen() -> bool:
    inside: list[bool] = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: inside.append(tracing.is_in_backward()))
    y.sum().backward()
    return inside == [True] and not tracing.is_in_backward()


# A Function at one level ------------------------------------------------------------------------
class _Cube(tracing.SingleLevelFunction):
    """The cube `x^3` as an autograd Function, built as `_operator` builds the gradient of a launch."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        with tracing.dispatch_below_autograd():
            return _get_cube()(x)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * cotangents[0]

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
        return _Cube.backward(ctx, *tangents)


@lru_cache(maxsize=1)
def _register_library() -> Library:
    """Register the operator `tinsmith::probe_of_cube`. Return its library, which keeps it registered."""
    library = Library("tinsmith", "FRAGMENT")
    library.define(f"{_CUBE}(Tensor x) -> Tensor")
    library.impl(_CUBE, lambda x: x**3, "CompositeExplicitAutograd")
    library.impl(_CUBE, lambda x: tracing.apply_at_one_level(_Cube, x), "Autograd")
    register_fake(f"tinsmith::{_CUBE}", torch.empty_like, lib=library)
    register_vmap(f"tinsmith::{_CUBE}", lambda info, dims, x: (x**3, dims[0]), lib=library)
    return library


def _get_cube() -> Callable[[torch.Tensor], torch.Tensor]:
    _register_library()
    return getattr(torch.ops.tinsmith, _CUBE)


def _make_x() -> torch.Tensor:
    return torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)


def _sum_cube(x: torch.Tensor) -> torch.Tensor:
    return _get_cube()(x).sum()


@_fact(
    "a Function applied at one level of torch.func has its gradient",
    "grad, vjp, jacrev and hessian of torch.func fail for every op, and so does torch.compile of them",
)
def _gradients_at_one_level_are_right() -> bool:
    x = _make_x()
    leaf = x.clone().requires_grad_()
    (plain,) = torch.autograd.grad(_sum_cube(leaf), leaf)
    return all(torch.equal(gradient, 3 * x * x) for gradient in (plain, grad(_sum_cube)(x), vmap(grad(_sum_cube))(x)))


@_fact(
    "a Function applied at one level of torch.func has its tangent",
    "jvp and jacfwd of torch.func, and dual numbers, fail for every op",
)
def _tangents_at_one_level_are_right() -> bool:
    x, direction = _make_x(), torch.ones(3, dtype=torch.float64)
    pushed = jvp(_get_cube(), (x,), (direction,))[1]
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(_get_cube()(forward_ad.make_dual(x, direction))).tangent
    return torch.equal(pushed, 3 * x * x) and dual is not None and torch.equal(dual, 3 * x * x)


@_fact(
    "a Function applied at one level works inside outer levels",
    "nested transforms (hessian, grad of grad) fail or give zeros",
)
def _nested_levels_are_right() -> bool:
    x = _make_x()
    twice = grad(lambda x: grad(_sum_cube)(x).sum())(x)
    forward_over_reverse = jvp(grad(_sum_cube), (x,), (torch.ones_like(x),))[1]
    # Reverse over forward, of a tangent that the operator's own jvp gives.
    reverse_over_forward = grad(lambda x: jvp(_get_cube(), (x,), (torch.ones_like(x),))[1].sum())(x)
    return all(torch.equal(second, 6 * x) for second in (twice, forward_over_reverse, reverse_over_forward))


# The eager Function -----------------------------------------------------------------------------
class _Square(torch.autograd.Function):
    """The square `x^2` as an autograd Function, built as `_eager` builds an eager call.

    Its backward pass appends what it unpacked from a batch of cotangents to the list `seen`.
    """

    @staticmethod
    def forward(ctx: Any, seen: list[Any], x: torch.Tensor) -> torch.Tensor:
        ctx.seen = seen
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if not tracing.has_legacy_batch(cotangents):
            return None, 2 * x * cotangents[0]
        level, (whole,), (dim,) = tracing.unwrap_legacy_vmap(cotangents)
        ctx.seen.append((whole, dim))
        return None, tracing.wrap_legacy_vmap(2 * x * whole, level)


@_fact("a Function applied without a check for transforms has its gradient", "the gradient of every plain call fails")
def _eager_function_has_a_gradient() -> bool:
    x = _make_x().requires_grad_()
    (gradient,) = torch.autograd.grad(tracing.get_unchecked_apply(_Square)([], x).sum(), x)
    return torch.equal(gradient, 2 * x)


@_fact(
    "a batch of is_grads_batched=True can be unpacked",
    "torch.autograd.grad(is_grads_batched=True) and jacobian(vectorize=True) fail for every op",
)
def _batched_cotangents_are_unwrapped() -> bool:
    x, seen = _make_x().requires_grad_(), []
    y = tracing.get_unchecked_apply(_Square)(seen, x)
    cotangents = torch.eye(3, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(y, x, cotangents, is_grads_batched=True)
    ((whole, dim),) = seen
    return dim == 0 and torch.equal(whole, cotangents) and torch.equal(gradient, torch.diag(2 * x))


# Others -----------------------------------------------------------------------------------------
@_fact(
    "tensors can be made outside transforms and inference mode",
    "tables that were made at a first call under a transform cannot be used by a later call",
)
def _tables_outlive_transforms() -> bool:
    tables: list[torch.Tensor] = []

    def make(x: torch.Tensor) -> torch.Tensor:
        with tracing.suspend_transforms():
            tables.append(torch.ones(3) * 2)
        return x

    vmap(make)(torch.ones(2))
    with torch.inference_mode():
        make(torch.ones(2))
    x = torch.ones(3, requires_grad=True)
    return all(not table.is_inference() and bool((x * table).sum() == 6) for table in tables)


@_fact("a function marked constant is not traced", "torch.compile traces into tinsmith and breaks the graph there")
def _constants_are_marked() -> bool:
    """Return True if our mark on a function equals the one that torch's own decorator leaves."""

    def ours() -> int:
        return 1

    def theirs() -> int:
        return 1

    return vars(tracing.constant_when_traced(ours)) == vars(torch.compiler.assume_constant_result(theirs))


@_fact(
    "levels of torch.func are listed by kind",
    "a scan in a compiled function whose derivative is of second order, or forward, fails with torch's own message",
)
def _levels_are_listed() -> bool:
    levels = []

    def look(x: torch.Tensor) -> torch.Tensor:
        levels.append(tuple(tracing.count_transforms()))
        return x.sum()

    torch.func.vmap(torch.func.grad(look))(torch.ones(2, 3))
    torch.func.jvp(look, (torch.ones(3),), (torch.ones(3),))
    return levels == [(1, 1, 0), (0, 0, 1)]


@_fact(
    "a batch of torch.func.vmap is detected",
    "an argument that is updated in place, and is not a batch under vmap, is refused with torch's own message",
)
def _batches_are_seen() -> bool:
    plain = torch.ones(2)
    seen: list[int] = [len(tracing.find_batch_levels(plain))]

    def ask(x: torch.Tensor) -> torch.Tensor:
        seen.extend([len(tracing.find_batch_levels(x)), len(tracing.find_batch_levels(plain))])
        return x.sum()

    vmap(vmap(grad(ask)))(torch.ones(1, 1, 2))
    return seen == [0, 2, 0]


@_fact("torch.jit.trace is detected", "torch.jit.trace would record the results of ops as constants")
def _older_tracer_is_seen() -> bool:
    seen: list[bool] = []

    def ask(x: torch.Tensor) -> torch.Tensor:
        seen.append(tracing.is_jit_traced() and not tracing.is_plain())
        return x + 1

    torch.jit.trace(ask, torch.ones(1), check_trace=False)
    return seen == [True] and not tracing.is_jit_traced()


@_fact(
    "a result gets another shape without becoming a view",
    "FSDP warns of modules with batch dims that they return a view",
)
def _results_are_no_views() -> bool:
    x = torch.ones(6, requires_grad=True)
    shaped = tracing.reshape_result(2 * x, (2, 3))
    (slope,) = torch.autograd.grad(shaped.sum(), x)
    assert shaped.grad_fn is not None
    # The name of a view's node is that of `view` or `reshape`.
    is_new = shaped.grad_fn.name() == "UnsafeViewBackward0"
    return is_new and shaped.shape == (2, 3) and bool((slope == 2).all())


@_fact(
    "changes of a tensor in place are counted",
    "an array that changed between the two passes of a layer or scan would give a wrong gradient",
)
def _changes_are_counted() -> bool:
    x = torch.ones(2)
    before = tracing.get_version(x)
    x.detach().add_(1.0)
    return tracing.get_version(x) == before + 1


@_fact(
    "a view is told from its base",
    "an op that updates a view in place under autograd would raise torch's error for Functions on views",
)
def _views_are_seen() -> bool:
    x = torch.ones(2, 3)
    return tracing.is_view(x[0]) and tracing.is_view(x.T) and not (tracing.is_view(x) or tracing.is_view(x.detach()))


@_fact(
    "a missing operator can raise an error of our own",
    "a program whose op is missing or edited is refused with torch's own message, which does not say why",
)
def _missing_operators_are_answered() -> bool:
    # An earlier check may have left it.
    vars(torch.ops).pop("tinsmith_probe", None)
    tracing.explain_missing_operators("tinsmith_probe", lambda name: LookupError(name) if name == "gone" else None)
    namespace = torch.ops.tinsmith_probe
    if hasattr(namespace, "other"):
        return False
    try:
        hasattr(namespace, "gone")
    except LookupError:
        return True
    return False
