"""Recording: records the kernels that a Python function calls, in order, with their arguments.

Nothing runs, unless Python asks for a value: then what was recorded runs on the fields (`_dry_run.py`).

A simulation calls a few kernels thousands of times. A kernel is analysed once (`RecordedKernel`); a
further call with numbers costs about a microsecond.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._errors import ArgumentError, GradientError, KernelError, refusal
from ..._user_warnings import find_place_of_user
from ...calls import BoundArguments
from ...calls.fields import Launcher
from ...engines import Engine, FieldFacts, Listener, get, list_loaded, module_name, of_field
from ...tracing import unwrap_levels
from ..fields import Launch, uses_of_each
from ._dry_run import DryRun
from ._writes import element_writer, filler, loader

MOST_BOUND = 1 << 16
"""Sets of arguments that are remembered for a kernel. One whose numbers are others each time makes new ones."""
COPIES = ("tensor_to_tensor", "ndarray_to_ndarray")
"""What both engines call the kernels under `x.copy_from(y)`, which are kernels like those of users."""


class RecordedKernel:
    """A kernel with what it is compiled for: its object, and its template arguments.

    Attributes:
        launcher: its kernel's.
        templates: its template arguments.
    """

    def __init__(self, launcher: Launcher, templates: Mapping[str, Any]) -> None:
        self.launcher = launcher
        self.templates = templates
        self._bound: dict[tuple[Any, ...], BoundArguments] = {}
        self._read_fields: dict[tuple[Any, ...], frozenset[int]] = {}
        names = launcher.signature.order
        self._others = [name for name in names if name not in templates]

    def launch(self, arguments: tuple[Any, ...]) -> Launch:
        """A launch with arguments, of which templates are left out. Raises ArgumentError."""
        bound = self._bound.get(arguments)
        if bound is None:
            bound = self._bind(arguments)
            if not bound.tensors:  # which would live on here
                if len(self._bound) >= MOST_BOUND:
                    self._bound.clear()
                self._bound[arguments] = bound
        return Launch(self.launcher, bound)

    def find_read_fields(self, launch: Launch) -> frozenset[int]:
        """Return the keys of the fields that a launch of it, which returns something, reads."""
        fingerprint = self.launcher.fingerprint(launch.bound)
        if fingerprint not in self._read_fields:
            self._read_fields[fingerprint] = self.launcher.find_read_fields(launch.bound)
        return self._read_fields[fingerprint]

    def _bind(self, arguments: tuple[Any, ...]) -> BoundArguments:
        if len(arguments) > len(self._others):
            signature, name = self.launcher.signature, self.launcher.stage.name
            words = f"kernel `{name}` of {signature.op} was called with too many arguments"
            rows = [("expected", ", ".join(signature.order)), ("got", f"{len(arguments)}")]
            raise ArgumentError(refusal(words, rows))
        values = {**self.templates, **dict(zip(self._others, map(_taken_out, arguments), strict=False))}
        return self.launcher.bind_arguments([values[name] for name in self.launcher.signature.order if name in values])


Call = tuple[RecordedKernel, tuple[Any, ...]]
"""What is called, and with which arguments: all but templates."""
Calls = tuple[Call, ...]


class KernelFacts(NamedTuple):
    """What is known of a kernel, whatever it is called with.

    Attributes:
        decorated: the kernel as its author has it; of a method, without its object.
        names: of its parameters; `templates` those of template parameters, `arrays` those of arrays; `defaults` of
            those that have one.
        is_plain: whether it takes nothing but numbers, always all of them, and returns nothing.
        returns: whether it returns something to Python.
    """

    decorated: Any
    names: tuple[str, ...]
    templates: tuple[str, ...]
    arrays: tuple[str, ...]
    defaults: Mapping[str, Any]
    is_method: bool
    is_plain: bool
    returns: bool


class Kernels:
    """The kernels that a rollout has called so far."""

    def __init__(self, name: str, engine: Engine, *, allows_races: bool = False) -> None:
        self.name = name
        self._allows_races = allows_races
        self.engine = engine
        self.plain: dict[Any, RecordedKernel] = {}
        self._known: dict[Any, KernelFacts] = {}
        self._called: dict[Any, RecordedKernel] = {}
        self._writers: dict[Any, Any] = {}
        self._alive: list[Any] = []  # what is known by its identity
        self._immutable: dict[int, Any] = {}
        self._copied: dict[tuple[Any, ...], Any] = {}
        # In one recording: by their identity, arrays among the arguments, and copies of what they held last.
        self._array_copies: dict[int, tuple[Any, _Array]] = {}

    def forget_arrays(self) -> None:
        """Drop the copies of arrays that a recording has made."""
        self._array_copies.clear()

    def find(self, kernel: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """What is called, and with which arguments."""
        known = self._known.get(kernel) or self._look(kernel)
        owner = arguments[0] if known.is_method else None
        given = arguments[1:] if known.is_method else arguments
        if len(given) > len(known.names):
            words = f"kernel `{kernel.func.__name__}` of {self.name} was called with too many arguments"
            raise ArgumentError(refusal(words, [("at", place_of_user())]))
        values = {**known.defaults, **dict(zip(known.names, given, strict=False)), **named}
        for name in known.templates:
            if name in values:
                values[name] = self._keep_members(values[name])
        # An engine's ndarray is memory that lasts, as a field is.
        objects = tuple([name for name in known.arrays if self.engine.is_ndarray(values.get(name))])
        key = (kernel, id(owner), objects, *[_identity(values.get(name)) for name in (*known.templates, *objects)])
        called = self._called.get(key)
        if called is None:
            decorated = known.decorated if owner is None else self.engine.bind(known.decorated, owner)
            templates = {name: values[name] for name in (*known.templates, *objects) if name in values}
            launcher = Launcher(decorated, self.name, objects=objects, allows_races=self._allows_races)
            called = self._called[key] = RecordedKernel(launcher, templates)
            self._alive += [owner, templates]
            if known.is_plain:
                self.plain[kernel] = called
        rest = [values[name] for name in known.names if name in values and name not in called.templates]
        return called, tuple([self._hashable(value) for value in rest])

    def write(self, make: Callable[[Engine, FieldFacts], Any], field: Any, *given: Any, **templates: Any) -> Call:
        """A write of ours into a field."""
        facts = self.engine.field_facts(field, "a field")
        kind = make, len(facts.shape), facts.element, facts.dtype
        if kind not in self._writers:
            self._writers[kind] = make(self.engine, facts)
        key = (make, facts.key, *map(id, templates.values()))
        if key not in self._called:
            fields = {"target": field, **templates}
            self._called[key] = RecordedKernel(Launcher(self._writers[kind], self.name), fields)
        return self._called[key], given

    def _look(self, kernel: Any) -> KernelFacts:
        engine = self.engine
        if not type(kernel).__module__.startswith(f"{engine.name}."):
            words = f"{self.name} runs on {engine.name}, and `{kernel.func.__name__}` is a kernel of another engine"
            raise KernelError(refusal(words, [("at", place_of_user())], "Use kernels of one engine."))
        name, tape = kernel.func.__name__, f"`{module_name(engine.name)}.ad.Tape`"
        if engine.is_gradient(kernel):
            words = f"{self.name} calls the engine's gradient of kernel `{name}`"
            remedy = f"Leave out `.grad()` calls and {tape}: a rollout makes the gradient of what it runs."
            raise GradientError(refusal(words, [("at", place_of_user())], remedy))
        if engine.owns(kernel.func) and name not in COPIES:
            words = f"{self.name} calls `{name}`, a kernel of {engine.name}'s own"
            remedy = f"Leave out {tape} and what else clears or computes gradients: a rollout does so itself."
            raise KernelError(refusal(words, [("at", place_of_user())], remedy))
        decorated = engine.free_kernel(kernel)
        returns = bool(engine.results(decorated))
        parameters = engine.parameters(decorated, ())
        templates = tuple(one.name for one in parameters if one.kind == "template")
        signature = inspect.signature(kernel.func).parameters
        defaults = {n: signature[n].default for n in signature if signature[n].default is not inspect.Parameter.empty}
        is_method = engine.is_method(decorated)
        is_plain = not (is_method or defaults or returns) and all(one.kind == "scalar" for one in parameters)
        arrays = tuple(one.name for one in parameters if one.kind == "array")
        names = tuple(one.name for one in parameters)
        known = KernelFacts(decorated, names, templates, arrays, defaults, is_method, is_plain, returns)
        self._known[kernel] = known
        return known

    def returns(self, kernel: Any) -> bool:
        """Whether a kernel returns something to Python."""
        return (self._known.get(kernel) or self._look(kernel)).returns

    def _hashable(self, value: Any) -> Any:
        """An argument as something that a sequence of calls is known by."""
        if type(value) in (int, float, bool, ReadNumber):
            return value
        if isinstance(value, (np.ndarray, torch.Tensor)):
            return self._copy_array(value)
        entries = self.engine.matrix_entries(value)
        if entries is not None:
            return entries
        return tuple(np.ravel(value).tolist()) if isinstance(value, (list, tuple)) else value

    def _keep_members(self, value: Any) -> Any:
        """Return a dataclass with the members that it has now; anything else, and a frozen one, as it is.

        Kernels run later, and the function may change a number or a tensor of the struct for the next one.
        """
        if not dataclasses.is_dataclass(value) or isinstance(value, type) or id(value) in self._immutable:
            return value
        names = [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]
        kept = {name: self._keep_members(getattr(value, name)) for name in names}
        is_frozen = type(value).__dataclass_params__.frozen  # pyright: ignore[reportAttributeAccessIssue]
        if is_frozen and all(kept[name] is getattr(value, name) for name in names):
            self._immutable[id(value)] = value
            return value
        key = (type(value), *[(name, _identity(one)) for name, one in kept.items()])
        if key not in self._copied:
            copied = self._copied[key] = copy.copy(value)
            for name, one in kept.items():
                object.__setattr__(copied, name, one)
        return self._copied[key]

    def _copy_array(self, value: Any) -> _Array:
        """Return an array as it is now: kernels run later, and the function may fill it again for the next one."""
        if isinstance(value, torch.Tensor) and (value.requires_grad or unwrap_levels(value) is not value):
            # Refused when it is bound.
            return _Array(value)
        known = self._array_copies.get(id(value))
        if known is None or not _holds_same(known[1].value, value):
            copied = value.copy() if isinstance(value, np.ndarray) else value.clone()
            known = self._array_copies[id(value)] = value, _Array(copied)
        return known[1]


def _holds_same(one: Any, other: Any) -> bool:
    """Return True if two arrays of one kind hold the same bytes."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if isinstance(one, np.ndarray):
        return one.tobytes() == other.tobytes()
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


_READ_REMEDY = (
    "Decide in a kernel what depends on the value of a field, or ask a kernel that returns it; read fields after the "
    "rollout. Write elements as a whole, and members of structs by `part.pos[i] = ...`."
)


class _Array(NamedTuple):
    """An array among the arguments, known by its identity."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Array) and self.value is other.value


def _taken_out(value: Any) -> Any:
    return value.value if isinstance(value, _Array) else value


def _identity(value: Any) -> Any:
    return (type(value), value) if isinstance(value, (int, float, str)) else id(value)


class CustomGradient(NamedTuple):
    """A call of a function of `no_grad` or `grad_replaced`: its gradient, None before `grad_for`, and its arguments."""

    gradient: Callable[..., Any] | None
    arguments: tuple[Any, ...]


class Block(NamedTuple):
    """Calls that are differentiated in one way.

    Attributes:
        calls: what is called, and with which arguments.
        customs: what an engine's tape would call in their place in reverse, the last first; None where it records them.
    """

    calls: Calls
    customs: tuple[CustomGradient, ...] | None = None


class Recording(Listener):
    """What a function calls, in order, in one run.

    Args:
        kernels: those of the rollout.
        dry_run: runs what is recorded where Python asks for a value; None where that value would not be one number, as
            under a transform.

    Attributes:
        calls: what is called, and with which arguments.
        read: keys of the fields of which Python was told something.
    """

    def __init__(self, kernels: Kernels, dry_run: DryRun | None) -> None:
        self._kernels = kernels
        self._plain = kernels.plain
        self._dry_run = dry_run
        self.calls: list[Call] = []
        self.read: set[int] = set()
        # For each call what the user called: a kernel and its arguments, or None for a write from Python.
        self._called: list[tuple[Any, tuple[Any, ...], dict[str, Any]] | None] = []
        self._run_count = 0
        self._customs: list[tuple[int, CustomGradient]] = []
        self._untaped: dict[int, KernelCall] = {}

    def run(self, function: Callable[[], Any]) -> Calls:
        """Listen while a function runs. Returns its calls. Fields hold afterwards what they held before."""
        try:
            with contextlib.ExitStack() as stack:
                for name in list_loaded():
                    stack.enter_context(get(name).redirect_calls(self))
                function()
        finally:
            self._kernels.forget_arrays()
            if self._dry_run is not None:
                self._dry_run.restore()
        return tuple(self.calls)

    @property
    def has_customs(self) -> bool:
        """Whether functions with custom gradients were called."""
        return bool(self._customs)

    def blocks(self) -> list[Block]:
        """The calls, divided where an engine's tape would call a custom gradient.

        A custom gradient that calls the engine's own gradients of exactly those kernels, the last first, is what is
        generated: programs write it in order to restore values first. Its kernels belong to the block around them.
        """
        blocks, begin = [], 0
        customs = self._customs[:]
        while customs:
            start, end = customs[0][0], customs[0][0]
            here = [one for place, one in customs if place == start]
            while end in self._untaped and not any(place == end for place, _ in customs[len(here) :]):
                end += 1
            customs = customs[len(here) :]
            calls = {place: self._untaped[place] for place in range(start, end)}
            reading = [call for place, call in calls.items() if self._reads(place)]
            if not _is_generated(here, [*calls.values()], reading):
                blocks += [Block(tuple(self.calls[begin:start])), Block(tuple(self.calls[start:end]), tuple(here))]
                begin = end
        return [*blocks, Block(tuple(self.calls[begin:]))]

    def _reads(self, place: int) -> bool:
        """Whether a kernel reads fields: one that only clears them has a gradient of 0."""
        called, arguments = self.calls[place]
        (uses,) = uses_of_each([called.launch(arguments)])
        return any(use.is_read for use in uses.values())

    def call_kernel(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any], *, is_taped: bool) -> Any:
        if not is_taped:
            self._untaped[len(self.calls)] = KernelCall(kernel.func, arguments, tuple(named.items()))
        called, given = self._plain.get(kernel), arguments
        if called is None or named:
            called, arguments = self._kernels.find(kernel, arguments, named)
            if self._kernels.returns(kernel):
                return self._run_now(called, arguments, functools.partial(kernel, *given, **named))
        self.calls.append((called, arguments))
        self._called.append((kernel, given, named))
        return None

    # Values for Python ------------------------------------------------------------------------
    def _run_now(self, called: RecordedKernel, arguments: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Run a kernel that returns something. It takes part in the rollout only where it changes fields."""
        launch = called.launch(arguments)
        (uses,) = uses_of_each([launch])
        self._run_recorded(f"kernel `{launch.launcher.stage.name}` returns a value")
        results: list[Any] = []
        with self.pause():
            self._dry().run([(launch, lambda: results.append(call()))])
        self.read |= called.find_read_fields(launch)
        if any(use.is_written for use in uses.values()):
            self.calls.append((called, arguments))
            self._called.append(None)
            self._run_count += 1
        (value,) = results
        return ReadNumber(value) if isinstance(value, float) else value

    def _run_recorded(self, what: str) -> None:
        """Run on the fields what has been recorded and has not run yet."""
        dry_run = self._dry()
        launches = [called.launch(arguments) for called, arguments in self.calls[self._run_count :]]
        drawing = next((one.launcher.stage.name for one in launches if one.launcher.signature.draws), None)
        if drawing is not None:
            words = f"{what} in {self._kernels.name} that may depend on random numbers, which are drawn again after it"
            remedy = f"Decide in a kernel, or draw the numbers of `{drawing}` by torch and make them an input."
            raise KernelError(refusal(words, [("at", place_of_user()), ("drawn in", drawing)], remedy))
        calls = [one and functools.partial(one[0], *one[1], **one[2]) for one in self._called[self._run_count :]]
        self._run_count = len(self.calls)
        with self.pause():
            dry_run.run([*zip(launches, calls, strict=True)])

    def _dry(self) -> DryRun:
        if self._dry_run is None:
            words = f"{self._kernels.name} tells Python a value of each sample under a transform of torch.func"
            raise KernelError(refusal(words, [("at", place_of_user())], _READ_REMEDY))
        return self._dry_run

    def enter_replaced(self, gradient: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        self._customs.append((len(self.calls), CustomGradient(gradient, arguments)))

    def read_field(self, field: Any, execute: Callable[[], Any]) -> Any:
        facts = self._kernels.engine.field_facts(field, "a field") if of_field(field) is self._kernels.engine else None
        if facts is None or facts.dtype.is_floating_point:
            words = f"{self._kernels.name} reads a field from Python while its kernels are being recorded"
            rows = [("field", f"{field!r:.60} of shape {tuple(field.shape)}"), ("at", place_of_user())]
            raise KernelError(refusal(words, rows, _READ_REMEDY))
        self._run_recorded("Python reads a field")
        self.read.add(facts.key)
        with self.pause():
            self._dry().run([])
            return execute()

    def write_element(self, field: Any, index: Any, value: Any) -> None:
        place = () if index is None else tuple(index) if isinstance(index, (tuple, list)) else (index,)
        self._write(element_writer, field, *[int(one) for one in place], *self._numbers(field, value))

    def fill_field(self, field: Any, value: Any) -> None:
        self._write(filler, field, *self._numbers(field, value))

    def load_field(self, field: Any, array: Any) -> None:
        self._refuse_gradient(array)
        facts = self._kernels.engine.field_facts(field, "a field")
        if tuple(array.shape) != facts.shape + facts.element:
            words = f"{self._kernels.name} fills a field from an array of another shape"
            rows = [("field", str(facts.shape + facts.element)), ("array", str(tuple(array.shape)))]
            raise ArgumentError(refusal(words, [*rows, ("at", place_of_user())]))
        copied = np.array(array) if isinstance(array, np.ndarray) else array.detach().clone()
        self._write(loader, field, _Array(torch.as_tensor(copied)))

    def _write(self, make: Any, field: Any, *given: Any) -> None:
        if of_field(field) is not self._kernels.engine:
            words = f"{self._kernels.name} runs on {self._kernels.engine.name}, and writes a field of another engine"
            raise KernelError(refusal(words, [("at", place_of_user())], "Use one engine."))
        self.calls.append(self._kernels.write(make, field, *given))
        self._called.append(None)

    def _numbers(self, field: Any, value: Any) -> list[Any]:
        """The numbers of an element that Python writes."""
        self._refuse_gradient(value)
        facts = self._kernels.engine.field_facts(field, "a field")
        entries = self._kernels.engine.matrix_entries(value)
        count = int(np.prod(facts.element)) if facts.element else 1
        numbers = list(entries) if entries is not None else np.ravel(np.asarray(value)).tolist()
        if any(isinstance(one, ReadNumber) for one in (value if isinstance(value, (list, tuple)) else (value,))):
            numbers = [ReadNumber(one) for one in numbers]
        numbers = numbers * count if len(numbers) == 1 else numbers
        if len(numbers) != count:
            words = f"{self._kernels.name} writes {len(numbers)} numbers to an element of {count}"
            raise ArgumentError(refusal(words, [("at", place_of_user())]))
        return numbers if facts.dtype.is_floating_point else [int(one) for one in numbers]

    def _refuse_gradient(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            words = f"{self._kernels.name} writes a tensor that requires a gradient into a field, where it gets none"
            rows = [("at", place_of_user())]
            raise GradientError(refusal(words, rows, "Name the field among the rollout's inputs, or pass `.detach()`."))


class ReadNumber(float):
    """A number that a kernel returned to Python: it may decide what runs, and has no gradient."""

    __slots__ = ()


def _compute(name: str) -> Callable[..., Any]:
    operation = getattr(float, name)

    def compute(*numbers: Any) -> Any:
        result = operation(*numbers)
        return ReadNumber(result) if isinstance(result, float) else result

    return compute


for _name in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv"):
    for _side in ("", "r"):
        setattr(ReadNumber, f"__{_side}{_name}__", _compute(f"__{_side}{_name}__"))
for _name in ("neg", "pos", "abs"):
    setattr(ReadNumber, f"__{_name}__", _compute(f"__{_name}__"))


class KernelCall(NamedTuple):
    """A call of a kernel: the Python function that it was made from, and what it is given."""

    function: Any
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()

    def is_same(self, other: KernelCall) -> bool:
        """Whether another call does the same: arguments are compared by identity, numbers by value."""
        pairs = zip(self.arguments, other.arguments, strict=False)
        is_alike = len(self.arguments) == len(other.arguments) and self.named == other.named
        return self.function is other.function and is_alike and all(_identity(a) == _identity(b) for a, b in pairs)


class _GradientRecording(Listener):
    """What a custom gradient calls, as far as it can be known without running anything."""

    def __init__(self) -> None:
        self.forward: list[KernelCall] = []
        self.gradients: list[KernelCall] = []

    def call_kernel(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any], *, is_taped: bool) -> None:
        engine = next(get(name) for name in list_loaded() if type(kernel).__module__.startswith(f"{name}."))
        calls = self.gradients if engine.is_gradient(kernel) else self.forward
        calls.append(KernelCall(kernel.func, arguments, tuple(named.items())))

    def enter_replaced(self, gradient: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        return

    def read_field(self, field: Any, execute: Callable[[], Any]) -> Any:
        raise _UnknownGradient

    def write_element(self, field: Any, index: Any, value: Any) -> None:
        raise _UnknownGradient

    def fill_field(self, field: Any, value: Any) -> None:
        raise _UnknownGradient

    def load_field(self, field: Any, array: Any) -> None:
        raise _UnknownGradient


class _UnknownGradient(Exception):
    """A custom gradient uses what it would only find when it runs."""


def _is_generated(
    customs: Sequence[CustomGradient], calls: Sequence[KernelCall], reading: Sequence[KernelCall]
) -> bool:
    """Whether a custom gradient calls the gradients of kernels, the last first, and else only the kernels again.

    Gradients of those that are not `reading` are 0, and need not be called.
    """
    if len(customs) != 1 or customs[0].gradient is None:
        return False
    recording = _GradientRecording()
    try:
        with contextlib.ExitStack() as stack:
            for name in list_loaded():
                stack.enter_context(get(name).redirect_calls(recording))
            customs[0].gradient(*customs[0].arguments)
    except Exception:  # noqa: BLE001  # whatever it is, the backward pass raises it again
        return False
    functions, needed = {one.function for one in calls}, {one.function for one in reading}
    gradients = [one for one in recording.gradients if one.function not in functions - needed]
    is_alike = len(gradients) == len(reading) and {one.function for one in recording.forward} <= functions
    return is_alike and all(one.is_same(other) for one, other in zip(gradients, reversed(reading), strict=True))


def place_of_user() -> str:
    """The line of the innermost caller that is neither ours nor an engine's."""
    return find_place_of_user(list_loaded())
