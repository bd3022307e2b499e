"""Failures: which of the known mistakes of hand-written Functions a traced one makes (docs/start/by-hand.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .._subject import Subject
from ._tensors import Launch, Tensor
from ._trace import Trace, tensors_in

FindKernel = Callable[[str], Subject | None]


class Failure(NamedTuple):
    """One mistake.

    Attributes:
        words: what goes wrong, and why.
        is_wrong: gradients are wrong, or memory is; False for what costs something or is refused.
    """

    words: str
    is_wrong: bool = True


def find_failures(trace: Trace, find_kernel: FindKernel, *, is_differentiable_once: bool) -> list[Failure]:
    """Return the mistakes of a Function that calls `kernel.grad`, the most damaging first."""
    failures: dict[str, Failure] = {}
    for launch in trace.gradients:
        kernel = find_kernel(launch.kernel)
        for failure in (
            *_find_doubled(trace, launch),
            *_find_zeroed(launch, kernel),
            *_find_lost(trace, launch),
            *_find_without_adjoint(trace, launch),
            *_find_counted_twice(launch, kernel),
            *_find_stale(trace, launch, kernel),
        ):
            failures.setdefault(failure.words, failure)
    for failure in (
        *_find_field_failures(trace),
        *_find_pointers(trace),
        *_find_allocated(trace),
        *_find_refused(trace),
    ):
        failures.setdefault(failure.words, failure)
    if not is_differentiable_once:
        words = "a second derivative is silently a constant: what `backward` returns has no history"
        failures[words] = Failure(words, is_wrong=False)
    return list(failures.values())


def _list_returned(trace: Trace) -> list[Tensor]:
    return tensors_in(trace.backward_result)


def _find_doubled(trace: Trace, launch: Launch) -> Iterator[Failure]:
    line = getattr(trace.backward_return, "lineno", 0)
    own = [one for one in launch.tensors if one.origin == "input" and one.is_original and one.requires_grad]
    returned = [one for one in own if any(_is_same(taken.taken_from, one) for taken in _list_returned(trace))]
    later = [owner for step, owner in trace.cleared if step > launch.step]
    cleared = [one for one in returned if any(_is_same(owner, one) for owner in later)]
    doubled = [one for one in returned if one not in cleared]
    if doubled:
        yield Failure(
            f"a leaf gets twice its gradient: the kernel adds to its own {_gradients(doubled)}, and autograd adds the "
            f"same again, since line {line} returns it"
        )
    if cleared:
        yield Failure(
            f"a gradient that a leaf already has is lost: the kernel adds to its own {_gradients(cleared)}, and "
            "`backward` clears it"
        )
    if own and not _list_returned(trace):
        yield Failure(f"only a leaf gets a gradient: the kernel adds to {_gradients(own)}, and `backward` returns none")


def _gradients(tensors: Sequence[Tensor]) -> str:
    """Return the gradients of tensors in words: "`x.grad` and `k.grad`"."""
    return " and ".join(f"`{name}.grad`" for name in dict.fromkeys(one.name for one in tensors))


def _is_same(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and one.origin == other.origin and one.name == other.name and one.is_original


def _find_zeroed(launch: Launch, kernel: Subject | None) -> Iterator[Failure]:
    for name, tensor in _bind(launch, kernel):
        grad = tensor.adjoint
        if grad is None or grad.origin != "incoming" or grad.taken_from is not None:
            continue
        if kernel is not None and name and not kernel.roles[name].of("write") and not kernel.roles[name].escapes:
            continue  # `y[i] += ...`: the reverse kernel reads the adjoint, and leaves it
        line = tensor.adjoint_line
        when = "where the kernel stores" if kernel is None else "after reading it"
        more = f"; `contiguous()` copies nothing where `{grad.name}` is contiguous" if grad.is_maybe_copy else ""
        yield Failure(
            f"a sibling branch gets the gradient 0: line {line} makes autograd's own `{grad.name}` the adjoint of the "
            f"output, and the reverse kernel sets it to 0 {when}{more}"
        )


def _find_lost(trace: Trace, launch: Launch) -> Iterator[Failure]:
    """Report a gradient that lands in a temporary: `K.grad(x.contiguous(), y)`, after which `x.grad` is returned."""
    for tensor in launch.tensors:
        is_temporary = (
            tensor.is_maybe_copy and tensor.origin == "input" and tensor.is_original and tensor.adjoint is None
        )
        is_returned = any(
            one.taken_from is not tensor and _is_same(one.taken_from, tensor) for one in _list_returned(trace)
        )
        if is_temporary and is_returned:
            yield Failure(
                f"the gradient is lost where `{tensor.name}` is not contiguous: the kernel adds it to the `.grad` of a "
                "`contiguous()` temporary, which is dropped"
            )


def _find_without_adjoint(trace: Trace, launch: Launch) -> Iterator[Failure]:
    for tensor in launch.tensors:
        if tensor.requires_grad is not False:
            continue
        is_output = tensor.adjoint is not None and tensor.adjoint_line > 0 and _reaches_incoming(tensor.adjoint)
        if is_output:
            yield Failure(
                f"every gradient is 0: `{tensor.name}` is passed without `requires_grad`, so the reverse kernel is "
                f"compiled without an adjoint for it, and ignores line {tensor.adjoint_line}"
            )
        elif any(one.taken_from is tensor for one in _list_returned(trace)):
            yield Failure(
                f"`{tensor.name}` gets no gradient: what is passed for it does not have `requires_grad`, so the "
                "kernel computes none"
            )


def _reaches_incoming(tensor: Tensor) -> bool:
    source = tensor.allocation.like if tensor.allocation is not None else None
    return tensor.origin == "incoming" or (source is not None and source.origin == "incoming")


def _find_counted_twice(launch: Launch, kernel: Subject | None) -> Iterator[Failure]:
    for name, tensor in _bind(launch, kernel):
        if kernel is None or name not in kernel.integers or (tensor.origin == "made" and not tensor.kept_on_context):
            continue
        if kernel.roles[name].of("add"):
            yield Failure(
                f"additions to `{name}` are made twice: it holds integers, so the reverse kernel runs them again"
            )


def _find_stale(trace: Trace, launch: Launch, kernel: Subject | None) -> Iterator[Failure]:
    for name, tensor in _bind(launch, kernel):
        if kernel is None or not name or name in kernel.integers or not kernel.roles[name].is_written:
            continue
        if tensor.origin == "input":
            yield Failure(
                f"gradients are those of the last call: the kernel writes to `{tensor.name}`, an argument that a later "
                "call may overwrite before `backward` reads it"
            )
    kept = [one for one in launch.tensors if one.origin == "input" and one.kept_on_context]
    names = " and ".join(f"`{one.name}`" for one in kept if one.name not in trace.saved)
    if names:
        words = f"a change of {names} between forward and backward is not noticed: it is an attribute of `ctx`, where "
        yield Failure(f"{words}`save_for_backward` compares versions", is_wrong=False)


def _bind(launch: Launch, kernel: Subject | None) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a launch, each with the kernel's array parameter that takes it, or "" if unknown."""
    names = [] if kernel is None else [one for one, facts in kernel.declared.items() if facts.kind != "object"]
    pairs = [*zip([*names, *[""] * len(launch.positional)], launch.positional, strict=False), *launch.named.items()]
    for name, value in pairs:
        if isinstance(value, Tensor):
            yield (name if kernel is not None and name in kernel.roles else ""), value


def _find_field_failures(trace: Trace) -> Iterator[Failure]:
    if trace.unknown_calls or not trace.field_gradients:
        return  # a helper that nobody reads may clear them
    for name in sorted(trace.read_fields - trace.cleared_fields):
        yield Failure(
            f"gradients add up from call to call: nothing clears the field `{name}.grad` before the kernel adds to it"
        )
    if not trace.uploaded_fields:
        yield Failure(
            "gradients are those of the last call: the kernel reads fields, which another call of `forward` overwrites "
            "before `backward` runs"
        )


def _find_pointers(trace: Trace) -> Iterator[Failure]:
    for node in trace.pointers:
        yield Failure(
            f"the memory is freed before the launch: line {node.lineno} takes the address of a temporary, which "
            "nothing keeps"
        )


def _find_allocated(trace: Trace) -> Iterator[Failure]:
    differentiated = {one.name for launch in trace.gradients for one in launch.tensors if one.origin == "input"}
    passed = [one for launch in trace.launches for one in launch.tensors]
    own = [one for one in passed if one.origin == "input" and one.is_original and one.name in differentiated]
    if own:
        words = f"{_gradients(own)} may appear under `no_grad`: a launch allocates `.grad` for whatever requires one"
        yield Failure(f"{words}, and `forward` passes the argument itself", is_wrong=False)


def _find_refused(trace: Trace) -> Iterator[Failure]:
    for launch in trace.gradients:
        for grad in (one.adjoint for one in launch.tensors):
            if grad is not None and grad.origin == "incoming" and not grad.is_maybe_copy:
                words = f"the gradient of a `sum()` is refused: `{grad.name}` is not contiguous then"
                yield Failure(words, is_wrong=False)
