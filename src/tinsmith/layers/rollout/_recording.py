"""Recording: records the kernels that a Python function calls, in order, with their arguments.

Nothing runs, unless Python asks for a value: then what was recorded runs on the fields (`_dry_run.py`).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._errors import ArgumentError, GradientError, KernelError, refusal
from ...engines import Listener, get, list_loaded, of_field
from ..fields import Launch, uses_of_each
from ._dry_run import DryRun
from ._kernels import Call, Calls, CopiedArray, Kernels, RecordedKernel, locate_user
from ._read_number import ReadNumber
from ._replaced_gradients import CustomGradient, KernelCall, is_generated
from ._writes import make_element_writer, make_filler, make_loader

_READ_REMEDY = (
    "Decide in a kernel what depends on the value of a field, or ask a kernel that returns it; read fields after the "
    "rollout. Write elements as a whole, and members of structs by `part.pos[i] = ...`."
)


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
        read: parts of the fields that Python code got a value from.
    """

    def __init__(self, kernels: Kernels, dry_run: DryRun | None) -> None:
        self._kernels = kernels
        self._plain = kernels.plain
        self._dry_run = dry_run
        self.calls: list[Call] = []
        self.read: set[int] = set()
        # For each call a call of the user's kernel. None for a write from Python, and where arguments may have changed
        # by the time that it runs.
        self._called: list[Callable[[], Any] | None] = []
        self._run_count = 0
        self._customs: list[tuple[int, CustomGradient]] = []
        self._untaped: dict[int, KernelCall] = {}

    def run(self, function: Callable[[], Any]) -> Calls:
        """Run a function and record its calls. Return them."""
        try:
            with contextlib.ExitStack() as stack:
                for name in list_loaded():
                    stack.enter_context(get(name).redirect_calls(self))
                function()
        finally:
            self._kernels.forget_arrays()
        return tuple(self.calls)

    @property
    def has_customs(self) -> bool:
        """Whether functions with custom gradients were called."""
        return bool(self._customs)

    def blocks(self) -> list[Block]:
        """Divide the calls into blocks at functions whose custom gradient an engine's tape would call.

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
            if not is_generated(here, [*calls.values()], reading):
                blocks += [Block(tuple(self.calls[begin:start])), Block(tuple(self.calls[start:end]), tuple(here))]
                begin = end
        return [*blocks, Block(tuple(self.calls[begin:]))]

    def _reads(self, place: int) -> bool:
        """Return True if a recorded kernel reads fields; the gradient of one that only clears them is 0."""
        called, arguments = self.calls[place]
        (uses,) = uses_of_each([called.launch(arguments)])
        return any(use.is_read for use in uses.values())

    def call_kernel(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any], *, is_taped: bool) -> Any:
        if not is_taped:
            self._untaped[len(self.calls)] = KernelCall(kernel.func, arguments, tuple(named.items()))
        called, given = self._plain.get(kernel), arguments
        later: Callable[[], Any] | None = None
        if called is None or named:
            (called, arguments), later = self._kernels.find(kernel, arguments, named)
            if self._kernels.returns(kernel):
                return self._run_now(called, arguments, functools.partial(kernel, *given, **named))
        else:
            later = functools.partial(kernel, *given)
        self.calls.append((called, arguments))
        self._called.append(later)
        return None

    # Values for Python ------------------------------------------------------------------------
    def _run_now(self, called: RecordedKernel, arguments: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Run a kernel that returns something. It takes part in the rollout only where it changes fields."""
        launch = called.launch(arguments)
        uses, read = self._dry().look_up(launch)
        self._run_recorded(f"kernel `{launch.launcher.stage.name}` returns a value")
        results: list[Any] = []
        with self.pause():
            self._dry().run([(launch, lambda: results.append(call()))])
        self.read |= read
        if any(use.is_written for use in uses.values()):
            self.calls.append((called, arguments))
            self._called.append(None)
            self._run_count += 1
        (value,) = results
        return ReadNumber(value) if isinstance(value, float) else value

    def run_rest(self) -> bool:
        """Run on the fields what has not run there yet, if a dry run has begun. Return True if fields hold it all.

        Kernels that draw random numbers are not run: an op draws them by torch.
        """
        launches = self._list_waiting()
        if self._dry_run is None or not self._dry_run.has_begun or _find_drawing(launches):
            return False
        self._run_waiting(self._dry_run, launches)
        return True

    def _run_recorded(self, what: str) -> None:
        """Run on the fields what has been recorded and has not run yet."""
        dry_run, launches = self._dry(), self._list_waiting()
        if drawing := _find_drawing(launches):
            words = (
                f"{what} in {self._kernels.name}, and it may depend on random numbers, which are drawn again afterwards"
            )
            remedy = f"Decide in a kernel, or draw the random numbers of `{drawing}` with torch and make them an input."
            raise KernelError(refusal(words, [("at", locate_user()), ("drawn in", drawing)], remedy))
        self._run_waiting(dry_run, launches)

    def _list_waiting(self) -> list[Launch]:
        """Return what has been recorded and has not run on the fields."""
        return [called.launch(arguments) for called, arguments in self.calls[self._run_count :]]

    def _run_waiting(self, dry_run: DryRun, launches: Sequence[Launch]) -> None:
        calls = self._called[self._run_count :]
        self._run_count = len(self.calls)
        with self.pause():
            dry_run.run([*zip(launches, calls, strict=True)])

    def _dry(self) -> DryRun:
        if self._dry_run is None:
            words = f"{self._kernels.name} reads a value in Python under a transform of torch.func"
            words += ", where each sample has its own"
            raise KernelError(refusal(words, [("at", locate_user())], _READ_REMEDY))
        return self._dry_run

    def enter_replaced(self, gradient: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        self._customs.append((len(self.calls), CustomGradient(gradient, arguments)))

    def read_field(self, field: Any, execute: Callable[[], Any]) -> Any:
        facts = self._kernels.engine.field_facts(field, "a field") if of_field(field) is self._kernels.engine else None
        if facts is None or facts.dtype.is_floating_point:
            words = f"{self._kernels.name} reads a field from Python while its kernels are being recorded"
            rows = [("field", f"{field!r:.60} of shape {tuple(field.shape)}"), ("at", locate_user())]
            raise KernelError(refusal(words, rows, _READ_REMEDY))
        self._run_recorded("Python reads a field")
        self.read.update(facts.parts)
        with self.pause():
            self._dry().run([])
            return execute()

    def write_element(self, field: Any, index: Any, value: Any) -> None:
        given = () if index is None else tuple(index) if isinstance(index, (tuple, list)) else (index,)
        place = [int(one) for one in given]
        self._write(make_element_writer, field, *place, *self._numbers(field, value))
        self._check_place(field, place)

    def _check_place(self, field: Any, place: Sequence[int]) -> None:
        """Raise KernelError unless the indices name an element of the field."""
        facts = self._kernels.engine.field_facts(field, "a field")
        name, at = self._kernels.name, ("at", locate_user())
        if len(place) != len(facts.shape):
            words = f"{name} writes from Python to a field with {len(place)} indices, not {len(facts.shape)}"
            rows = [("indices", str(tuple(place))), ("field", str(facts.shape)), at]
            raise KernelError(refusal(words, rows, "Use one index for each dim."))
        axes = zip(place, facts.offset, facts.shape, strict=True)
        if not all(first <= one < first + size for one, first, size in axes):
            words = f"{name} writes from Python to an element that the field does not have"
            rows = [("index", str(tuple(place))), ("field", str(facts.shape)), at]
            rows += [("first index", str(facts.offset))] if any(facts.offset) else []
            raise KernelError(refusal(words, rows, "Use an index inside the field."))

    def fill_field(self, field: Any, value: Any) -> None:
        self._write(make_filler, field, *self._numbers(field, value))

    def load_field(self, field: Any, array: Any) -> None:
        self._refuse_gradient(array)
        facts = self._kernels.engine.field_facts(field, "a field")
        if tuple(array.shape) != facts.shape + facts.element:
            words = f"{self._kernels.name} fills a field from an array of another shape"
            rows = [("field", str(facts.shape + facts.element)), ("array", str(tuple(array.shape)))]
            raise ArgumentError(refusal(words, [*rows, ("at", locate_user())], "Pass an array of the field's shape."))
        copied = np.array(array) if isinstance(array, np.ndarray) else array.detach().clone()
        self._write(make_loader, field, CopiedArray(torch.as_tensor(copied)))

    def _write(self, make: Any, field: Any, *given: Any) -> None:
        if of_field(field) is not self._kernels.engine:
            words = f"{self._kernels.name} runs on {self._kernels.engine.name}, and writes a field of another engine"
            raise KernelError(
                refusal(words, [("at", locate_user())], "Use fields of the engine that the kernels run on.")
            )
        self.calls.append(self._kernels.write(make, field, *given))
        self._called.append(None)

    def _numbers(self, field: Any, value: Any) -> list[Any]:
        """Return the numbers of an element that Python writes, in order."""
        self._refuse_gradient(value)
        facts = self._kernels.engine.field_facts(field, "a field")
        entries = self._kernels.engine.matrix_entries(value)
        count = math.prod(facts.element)
        numbers = list(entries) if entries is not None else np.ravel(np.asarray(value)).tolist()
        if any(isinstance(one, ReadNumber) for one in (value if isinstance(value, (list, tuple)) else (value,))):
            numbers = [ReadNumber(one) for one in numbers]
        numbers = numbers * count if len(numbers) == 1 else numbers
        if len(numbers) != count:
            words = f"{self._kernels.name} writes {len(numbers)} numbers to an element of {count}"
            raise ArgumentError(refusal(words, [("at", locate_user())], "Write one number, or one for each entry."))
        return numbers if facts.dtype.is_floating_point else [int(one) for one in numbers]

    def _refuse_gradient(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            words = f"{self._kernels.name} writes a tensor that requires a gradient into a field, where it gets none"
            rows = [("at", locate_user())]
            raise GradientError(refusal(words, rows, "Name the field among the rollout's inputs, or pass `.detach()`."))


def _find_drawing(launches: Sequence[Launch]) -> str:
    """Return the name of the first kernel that draws random numbers; an empty string if there is none."""
    return next((one.launcher.stage.name for one in launches if one.launcher.signature.draws), "")
