"""Kernels of a rollout: what is known of each kernel that its function has called, and of its arguments.

A simulation calls a few kernels thousands of times. A kernel is analyzed once (`RecordedKernel`); a
further call with numbers costs about a microsecond.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._errors import ArgumentError, GradientError, KernelError, refusal
from ..._user_warnings import find_line_of_user
from ...calls import BoundArguments
from ...calls.fields import Launcher
from ...engines import Engine, FieldFacts, list_loaded, module_name, name_place
from ...frontend.tree import HeldArray, is_struct
from ...tracing import unwrap_levels
from ..fields import Launch
from ._read_number import ReadNumber

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
        names = launcher.signature.order
        self._others = [name for name in names if name not in templates]

    def launch(self, arguments: tuple[Any, ...]) -> Launch:
        """Build a launch of the kernel with these arguments, templates left out. Raises ArgumentError."""
        bound = self._bound.get(arguments)
        if bound is None:
            bound = self._bind(arguments)
            if not bound.tensors:  # which would live on here
                if len(self._bound) >= MOST_BOUND:
                    self._bound.clear()
                self._bound[arguments] = bound
        return Launch(self.launcher, bound)

    def _bind(self, arguments: tuple[Any, ...]) -> BoundArguments:
        if len(arguments) > len(self._others):
            signature, name = self.launcher.signature, self.launcher.stage.name
            words = f"kernel `{name}` of {signature.op} was called with too many arguments"
            rows = [("expected", ", ".join(signature.order)), ("got", f"{len(arguments)}")]
            raise ArgumentError(refusal(words, rows, "Pass one argument for each parameter."))
        values = {**self.templates, **dict(zip(self._others, map(_unwrap, arguments), strict=False))}
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
        structs: names of the parameters whose annotations are dataclasses.
    """

    decorated: Any
    names: tuple[str, ...]
    templates: tuple[str, ...]
    arrays: tuple[str, ...]
    defaults: Mapping[str, Any]
    structs: frozenset[str]
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
        self._array_copies: dict[int, tuple[Any, CopiedArray]] = {}

    def forget_arrays(self) -> None:
        """Drop the copies of arrays that a recording has made."""
        self._array_copies.clear()

    def find(
        self, kernel: Any, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Call, Callable[[], Any] | None]:
        """Return what is called with which arguments; and a call that does the same later.

        Return None in place of the call if arguments may have changed by then.
        """
        known = self._known.get(kernel) or self._look(kernel)
        owner = arguments[0] if known.is_method else None
        given = arguments[1:] if known.is_method else arguments
        if len(given) > len(known.names):
            words = f"kernel `{kernel.func.__name__}` of {self.name} was called with too many arguments"
            raise ArgumentError(refusal(words, [("at", locate_user())], "Pass one argument for each parameter."))
        values = {**known.defaults, **dict(zip(known.names, given, strict=False)), **named}
        kept = {name: self._keep_members(values[name]) for name in known.templates if name in values}
        values |= kept
        # An engine's ndarray is memory that lasts, as a field is.
        objects = tuple([name for name in known.arrays if self.engine.is_ndarray(values.get(name))])
        key = (kernel, id(owner), objects, *[identify(values.get(name)) for name in (*known.templates, *objects)])
        called = self._called.get(key)
        if called is None:
            decorated = known.decorated if owner is None else self.engine.bind(known.decorated, owner)
            templates = {name: values[name] for name in (*known.templates, *objects) if name in values}
            launcher = Launcher(
                decorated, self.name, objects=objects, allows_races=self._allows_races, templates=templates
            )
            called = self._called[key] = RecordedKernel(launcher, templates)
            self._alive += [owner, templates]
            if known.is_plain and not launcher.held:
                self.plain[kernel] = called
        rest = [values[name] for name in known.names if name in values and name not in called.templates]
        rest += [one.value for one in called.launcher.held.values()]
        hashable = tuple([self._hashable(value) for value in rest])
        return (called, hashable), self._find_later_call(kernel, known, arguments, values, called.launcher.held)

    def _find_later_call(
        self,
        kernel: Any,
        known: KernelFacts,
        arguments: Sequence[Any],
        values: Mapping[str, Any],
        held: Mapping[str, HeldArray],
    ) -> Callable[[], Any] | None:
        """Return a call of the user's kernel that does the same when arguments have changed; None if there is none.

        Args:
            kernel: what the user calls.
            known: what is known of it.
            arguments: what it was called with, in order.
            values: the same by name, with structs as they are now.
            held: arrays that it reads as members of structs.
        """
        if any(isinstance(values.get(name), (np.ndarray, torch.Tensor)) for name in known.arrays):
            return None
        # An engine takes copies of structs where the annotation is a dataclass.
        if any(one.path.partition(".")[0] not in known.structs for one in held.values()):
            return None
        ordered = [self._copy_arrays(values[name]) if held else values[name] for name in known.names if name in values]
        return functools.partial(kernel, *arguments[: int(known.is_method)], *ordered)

    def _copy_arrays(self, value: Any) -> Any:
        """Return a struct with copies of its arrays; anything else as it is."""
        if not is_struct(value):
            return value
        copied = copy.copy(value)
        for one in dataclasses.fields(value):
            member = getattr(value, one.name, None)
            is_array = isinstance(member, (np.ndarray, torch.Tensor))
            new = self._copy_array(member).value if is_array else self._copy_arrays(member)
            if new is not member:
                object.__setattr__(copied, one.name, new)
        return copied

    def write(self, make: Callable[[Engine, FieldFacts], Any], field: Any, *given: Any, **templates: Any) -> Call:
        """Return the call of a generated kernel that writes into a field, made by `make` once for a kind of field."""
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
            raise KernelError(refusal(words, [("at", locate_user())], "Use kernels of one engine."))
        name, tape = kernel.func.__name__, f"`{module_name(engine.name)}.ad.Tape`"
        if engine.is_gradient(kernel):
            words = f"{self.name} calls the engine's gradient of kernel `{name}`"
            remedy = f"Leave out `.grad()` calls and {tape}: a rollout makes the gradient of what it runs."
            raise GradientError(refusal(words, [("at", locate_user())], remedy))
        if engine.owns(kernel.func) and name not in COPIES:
            words = f"{self.name} calls `{name}`, a kernel of {engine.name}'s own"
            remedy = f"Leave out {tape} and what else clears or computes gradients: a rollout does so itself."
            raise KernelError(refusal(words, [("at", locate_user())], remedy))
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
        structs = frozenset([path[0] for path in engine.structs(decorated)])
        known = KernelFacts(decorated, names, templates, arrays, defaults, structs, is_method, is_plain, returns)
        self._known[kernel] = known
        return known

    def returns(self, kernel: Any) -> bool:
        """Return True if a kernel returns a value to Python."""
        return (self._known.get(kernel) or self._look(kernel)).returns

    def _hashable(self, value: Any) -> Any:
        """Return a hashable form of an argument; arrays are copied."""
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

        Kernels run later, and the function may change a number or a tensor of the struct for the next one. Structs
        that differ in the numbers of their arrays alone are one struct, which gets the arrays of now.
        """
        if not dataclasses.is_dataclass(value) or isinstance(value, type) or id(value) in self._immutable:
            return value
        names = [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]
        kept = {name: self._keep_members(getattr(value, name)) for name in names}
        arrays = {name: one for name, one in kept.items() if isinstance(one, (np.ndarray, torch.Tensor))}
        is_frozen = type(value).__dataclass_params__.frozen  # pyright: ignore[reportAttributeAccessIssue]
        if is_frozen and not arrays and all(kept[name] is getattr(value, name) for name in names):
            self._immutable[id(value)] = value
            return value
        kinds = {name: (type(one), one.dtype, one.ndim) for name, one in arrays.items()}
        key = (type(value), *[(name, kinds.get(name) or identify(one)) for name, one in kept.items()])
        if key not in self._copied:
            self._copied[key] = copy.copy(value)
            arrays = kept
        for name, one in arrays.items():
            object.__setattr__(self._copied[key], name, one)
        return self._copied[key]

    def _copy_array(self, value: Any) -> CopiedArray:
        """Return an array as it is now: kernels run later, and the function may fill it again for the next one."""
        if isinstance(value, torch.Tensor) and (value.is_meta or not _is_plain_memory(value)):
            # Refused when it is bound.
            return CopiedArray(value)
        known = self._array_copies.get(id(value))
        if known is None or not _holds_same(known[1].value, value):
            copied = value.copy() if isinstance(value, np.ndarray) else value.clone()
            known = self._array_copies[id(value)] = value, CopiedArray(copied)
        return known[1]


def _is_plain_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and unwrap_levels(tensor) is tensor


def _holds_same(one: Any, other: Any) -> bool:
    """Return True if two arrays of one kind hold the same bytes."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if isinstance(one, np.ndarray):
        return one.tobytes() == other.tobytes()
    return torch.equal(*[t.detach().reshape(-1).view(torch.uint8) for t in (one, other)])


class CopiedArray(NamedTuple):
    """A copy of an array among the arguments, compared and hashed by its identity."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CopiedArray) and self.value is other.value


def _unwrap(value: Any) -> Any:
    """Return the array inside a `CopiedArray`; any other value is returned unchanged."""
    return value.value if isinstance(value, CopiedArray) else value


def identify(value: Any) -> Any:
    """Return what an argument is known by: a number or a text by its value, anything else by its identity."""
    return (type(value), value) if isinstance(value, (int, float, str)) else id(value)


def locate_user() -> str:
    """Return the file and line of the unwrap_levels caller outside tinsmith and the engines."""
    return name_place(*find_line_of_user(list_loaded()))
