"""Steps: an op, a layer or a Python function with one interface, on lists of tensors.

Each kind of step takes the tensors of the state, of the step's inputs and of the parameters, and returns those of the
next state and of its outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._errors import ArgumentError, GradientError, refusal
from ..operation import Op
from ..operation.examination import Examinable
from ._trees import LEAF, NOTHING, Tree, take_apart

_NOTHING: Mapping[str, Any] = {}


class Given(NamedTuple):
    """A flattened argument of a scan: `state`, `inputs` or `parameters`."""

    leaves: list[Any]
    tree: Tree

    @property
    def tensors(self) -> list[Tensor]:
        """The leaves that are tensors; parameters may also be numbers."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def replace_tensors(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the leaves with the tensors replaced by others, in order."""
        remaining = iter(tensors)
        return [next(remaining) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]


class Step(ABC):
    """The step of a scan.

    Attributes:
        name: the name for messages.
        outputs: the structure of its outputs; None before the first call of a Python function.
    """

    name: str
    outputs: Tree | None = None

    @abstractmethod
    def __call__(
        self, state: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Run the step, and return the tensors of the next state and of the outputs."""

    @property
    def op(self) -> Op[Any] | None:
        """The op, if the step is one; else None."""
        return None


class FunctionStep(Step):
    """A Python function `step(state, inputs, *parameters)` that returns the next state and the outputs."""

    def __init__(self, function: Callable[..., Any], state: Given, inputs: Given, parameters: Given) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._state, self._inputs, self._parameters = state, inputs, parameters

    def __call__(
        self, state: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        given = self._parameters.tree.put_together(self._parameters.replace_tensors(parameters))
        now, row = self._state.tree.put_together(state), self._inputs.tree.put_together(inputs)
        made = (
            self._function(now, row, **given) if isinstance(given, dict) else self._function(now, row, *_tuple(given))
        )
        if not isinstance(made, tuple) or len(made) != 2:
            words = f"step `{self.name}` of a scan must return the next state and the outputs of the step"
            rows = [("expected", f"({self._state.tree}, outputs)"), ("returned", _describe(made))]
            raise ArgumentError(refusal(words, rows, "Write `return state, outputs`, or `return state, None`."))
        following, tree = take_apart(made[0])
        if tree != self._state.tree:
            words = f"step `{self.name}` of a scan returned a state with another structure than it was given"
            rows = [("given", str(self._state.tree)), ("returned", str(tree))]
            remedy = "Return a state with the tensors of the one given, in their order, and then the outputs or None."
            raise ArgumentError(refusal(words, rows, remedy))
        outputs, tree = take_apart(made[1])
        self._check_outputs(outputs, tree)
        return following, outputs

    def _check_outputs(self, outputs: Sequence[Any], tree: Tree) -> None:
        if self.outputs is None:
            odd = next((one for one in outputs if not isinstance(one, Tensor)), None)
            if odd is not None:
                words = f"step `{self.name}` of a scan returned an output that is not a tensor"
                remedy = "Return tensors, `torch.as_tensor(...)`: outputs of all steps become one tensor."
                raise ArgumentError(refusal(words, [("returned", _describe(odd))], remedy))
            self.outputs = tree
        elif tree != self.outputs:
            words = f"step `{self.name}` of a scan returned outputs with another structure than in an earlier step"
            rows = [("before", str(self.outputs)), ("now", str(tree))]
            raise ArgumentError(
                refusal(words, rows, "Return the same structure in every step: the outputs are stacked.")
            )


class CallStep(Step):
    """An op or a layer, whose arguments are state, inputs and parameters, and whose first results are the next state.

    Attributes:
        arrange: a function from state, inputs and parameters to arguments by position and by name.
        places: the index among the results of each tensor of the state.
        names: for an op, the names of the arguments for state, inputs, and tensors among the parameters.
        numbers: for an op, the numbers among the parameters, by name.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        arrange: Callable[..., tuple[list[Any], dict[str, Any]]],
        places: Sequence[int],
        op: Op[Any] | None = None,
        names: tuple[Sequence[str], ...] = ((), (), ()),
        numbers: Mapping[str, Any] = _NOTHING,
    ) -> None:
        self.name = name
        self.arrange = arrange
        self.places = tuple(places)
        self.names: tuple[Sequence[str], ...] = names
        self.numbers = numbers
        self._function = function
        self._op = op
        if op is not None:
            left = tuple(name for place, name in enumerate(op.results) if place not in self.places)
            self.outputs = NOTHING if not left else LEAF if len(left) == 1 else Tree(dict, left, (LEAF,) * len(left))

    @property
    def op(self) -> Op[Any] | None:
        return self._op

    def __call__(
        self, state: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        arguments, named = self.arrange(state, inputs, parameters)
        made = self._function(*arguments, **named)
        results = [made] if isinstance(made, Tensor) else list(made)
        if len(results) < len(self.places):
            words = f"step `{self.name}` of a scan has fewer results than its state has tensors"
            rows = [("state", str(len(self.places))), ("results", str(len(results)))]
            raise ArgumentError(
                refusal(words, rows, "Return the next state first, one result for each tensor of the state.")
            )
        outputs = [one for place, one in enumerate(results) if place not in self.places]
        if self.outputs is None:
            several = Tree(tuple, (), (LEAF,) * len(outputs))
            self.outputs = NOTHING if not outputs else LEAF if len(outputs) == 1 else several
        return [results[place] for place in self.places], outputs


def make_step(step: Any, state: Given, inputs: Given, parameters: Given) -> Step:
    """Wrap a user's op, layer or function as a step. Raise ArgumentError if it does not fit the arguments."""
    if isinstance(step, Op):
        return _make_op_step(step, state, inputs, parameters)
    if isinstance(step, torch.nn.Module) and isinstance(step, Examinable):
        return _make_layer_step(step, state, inputs, parameters)
    if not callable(step):
        words = "a scan needs an op, a chain, a layer or a function as its step"
        actual = f"{type(step).__name__} {step!r:.60}"
        raise ArgumentError(refusal(words, [("got", actual)], "Make an op of a kernel: `ts.op(spec)(kernel)`."))
    return FunctionStep(step, state, inputs, parameters)


def _make_layer_step(layer: Any, state: Given, inputs: Given, parameters: Given) -> Step:
    label = type(layer).__name__
    for what, given in (("state", state), ("inputs", inputs), ("parameters", parameters)):
        if given.tree.is_dict or not given.tree.is_flat:
            words = f"`{what}` of a scan over a layer must be a tensor or a tuple of tensors"
            remedy = "Pass them in the order in which the layer is called; or scan a Python function that calls it."
            raise ArgumentError(refusal(words, [("got", str(given.tree))], remedy))

    def arrange(*groups: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        now, row, others = groups
        return [*now, *row, *parameters.replace_tensors(others)], {}

    return CallStep(label, layer, arrange, range(len(state.leaves)))


def check_repeatable(step: Step) -> None:
    """Raise GradientError for an op that draws the engine's random numbers, which are others when a step runs again."""
    if step.op is not None and step.op.draws_anew:
        words = f"a scan over op `{step.name}` cannot have a gradient: its kernel draws random numbers of the engine"
        rows = [("because", "a step that the backward pass runs again would draw other numbers")]
        remedy = (
            "Let the gradient be generated, `adjoint='source'`: the numbers follow torch's seed then. Or draw them "
        )
        raise GradientError(refusal(words, rows, remedy + "in torch, and pass them as `inputs`."))


def _make_op_step(op: Op[Any], state: Given, inputs: Given, parameters: Given) -> Step:
    """Build the step of an op. Raise ArgumentError if state, inputs and parameters do not fit it."""
    groups = {"state": state, "inputs": inputs, "parameters": parameters}
    owner, sizes = _assign_arguments(op, groups)
    placed = {one: name for name, one in owner.items()}
    names = tuple(
        [
            placed[what, place]
            for place, leaf in enumerate(given.leaves)
            if isinstance(leaf, Tensor) and (what, place) in placed
        ]
        for what, given in groups.items()
    )
    numbers = {
        placed.get(("parameters", place)) or parameters.tree.keys[place]: leaf
        for place, leaf in enumerate(parameters.leaves)
        if not isinstance(leaf, Tensor)
    }
    places = _find_state_results(op, names[0])
    order = [owner[name] for name in op.arguments]

    def arrange(*given: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        now, row, others = given
        values = {"state": now, "inputs": row, "parameters": parameters.replace_tensors(others)}
        return [values[what][place] for what, place in order], {n: values[w][p] for n, (w, p) in sizes.items()}

    return CallStep(op.name, op.functional, arrange, places, op.functional, names, numbers)


def _assign_arguments(
    op: Op[Any], groups: dict[str, Given]
) -> tuple[dict[str, tuple[str, int]], dict[str, tuple[str, int]]]:
    """Return where a scan has each argument of an op, and each dim passed by keyword: the group, and the place in it.

    Arguments are assigned by the keys of dicts, the others in the op's order.

    Raises:
        ArgumentError: a group is nested, names are unknown or used twice, or the number of arguments is wrong.
    """
    owner: dict[str, tuple[str, int]] = {}
    sizes: dict[str, tuple[str, int]] = {}
    for what, given in groups.items():
        if not given.tree.is_flat:
            words = f"`{what}` of a scan over op `{op.name}` must be a tensor, or a tuple or dict of tensors"
            remedy = "Pass it without nesting, or scan a Python function that calls the op."
            raise ArgumentError(refusal(words, [("got", str(given.tree))], remedy))
        for place, key in enumerate(given.tree.keys):
            known = owner if key in op.arguments else sizes if what == "parameters" else None
            if known is None or key in owner or key in sizes:
                problem = "is given twice" if known is not None else "is not an argument"
                words = f"`{key}` in `{what}` of a scan {problem} of op `{op.name}`"
                raise ArgumentError(
                    refusal(words, [("arguments", ", ".join(op.arguments))], "Use these names, each once.")
                )
            known[key] = what, place
    left = [name for name in op.arguments if name not in owner]
    for what, given in groups.items():
        for place in range(0 if given.tree.is_dict else len(given.leaves)):
            if not left:
                raise ArgumentError(_explain_misfit(op, groups, "has too many arguments"))
            owner[left.pop(0)] = what, place
    if left:
        raise ArgumentError(_explain_misfit(op, groups, f"is missing `{left[0]}`"))
    return owner, sizes


def _find_state_results(op: Op[Any], names: Sequence[str]) -> list[int]:
    """Return the index of the next value of each of these arguments among the results of the functional op.

    Updated arguments come first; the others get the next results, in the order of the arguments.

    Raises:
        ArgumentError: an updated argument is not in the state, or there are too few results.
    """
    updated = [item.name for item in op.spec.updated_inputs]
    results = op.functional.results
    missing = [name for name in updated if name not in names]
    if missing:
        words = f"`{missing[0]}` of op `{op.name}` is updated in place, and is not in the state of the scan"
        rows = [("state", ", ".join(names)), ("updated", ", ".join(updated))]
        raise ArgumentError(refusal(words, rows, "Add it to the state, by name: `state={...}`."))
    others = [name for name in op.arguments if name in names and name not in updated]
    if len(others) + len(updated) > len(results):
        words = f"the state of a scan over op `{op.name}` has more tensors than the op has results"
        rows = [("state", ", ".join(names)), ("results", ", ".join(results))]
        remedy = "Pass what does not change from step to step in `parameters`."
        raise ArgumentError(refusal(words, rows, remedy))
    places = {name: place for place, name in enumerate((*updated, *others))}
    _refuse_swapped(op, others, results[len(updated) :])
    return [places[name] for name in names]


def _refuse_swapped(op: Op[Any], names: Sequence[str], results: Sequence[str]) -> None:
    """Raise ArgumentError if the results' names, such as `x_next`, show that they are in another order than `names`."""
    affixes: dict[tuple[str, str], dict[str, str]] = {}
    for name in names:
        for result in results:
            head, middle, tail = result.partition(name)
            if middle and (head or tail):
                affixes.setdefault((head, tail), {})[name] = result
    by_name: dict[str, str] = {}
    for by_affix in affixes.values():  # torch.compile does not support `max` with a key
        by_name = by_affix if len(by_affix) > len(by_name) else by_name
    by_place = dict(zip(names, results, strict=False))
    if len(by_name) < len(names) or by_name == by_place:
        return
    words = f"the state of a scan over op `{op.name}` and the op's results are in different orders"
    rows = [("arguments", ", ".join(names)), ("results", ", ".join(results))]
    remedy = "Write the outputs of the spec in the order of the arguments: the first results are the next state."
    raise ArgumentError(refusal(words, rows, remedy))


def _explain_misfit(op: Op[Any], groups: dict[str, Given], problem: str) -> str:
    rows = [("arguments", ", ".join(op.arguments))]
    rows += [(what, str(given.tree)) for what, given in groups.items()]
    remedy = "Pass the op's arguments as state, inputs of the step and parameters, in this order or in dicts by name."
    return refusal(f"a scan over op `{op.name}` {problem}", rows, remedy)


def _tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _describe(value: Any) -> str:
    if isinstance(value, (Tensor, tuple, list, dict)) or value is None:
        return str(take_apart(value)[1])
    return f"{type(value).__name__} {value!r:.60}"
