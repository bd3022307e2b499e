"""A Tin on tensors: its fields become arrays of an op, and are left alone.

Each kernel's references to registered fields are replaced by parameters. So nothing is copied,
a batch is one launch, and each call's values are its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import torch

from ..._errors import GradientError, KernelError, SpecError, refusal
from ...bridge import (
    Adjoint,
    Examination,
    FieldArray,
    Foresight,
    Links,
    Op,
    OpOptions,
    Prepared,
    current_watch,
    examine_layer,
    is_tracing,
)
from ...engines import NAMES
from ...source import build, parse_statement
from ...source.ir import NotCovered
from .._identifiers import OURS, find_used_names, identifier
from .._pool import RECORDED
from ._gradient_stores import GradientStores
from ._layer_field import LayerField, place_field
from ._roles import Launch, Roles, Use, by_key, uses_of_each
from ._starts import is_replaced_first, start_kernel


class OpProgram:
    """The op that a layer's kernels make.

    Args:
        layer: its name, for messages.
        roles: what its fields are for.
        launches: its kernels with their arguments.
        runs: whether the op is to be called; otherwise it is made for its checks alone.
        instead: what may be done where a gradient is refused.
        cleared: fields that start each call at zero.
        adjoint: where the gradient comes from, as for `tinsmith.op`.
        begins_at_zero: whether indices of the kernels begin at 0, whatever the fields' offsets are (`name_fields`).

    Raises:
        KernelError: a kernel uses a field in a way that no array allows.
        GradientError: a gradient would have to go to a field that is no weight.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        *,
        runs: bool = True,
        instead: Callable[[], str] | None = None,
        cleared: Sequence[LayerField] = (),
        adjoint: Adjoint = "auto",
        begins_at_zero: bool = False,
    ) -> None:
        self._layer = layer
        self._adjoint: Adjoint = adjoint
        self._begins_at_zero = begins_at_zero
        self._roles = roles
        self._cleared = by_key(cleared)
        self._instead = instead
        self._stores = GradientStores(roles, launches)
        self._last: tuple[Sequence[Launch], Prepared | None] = ((), None)
        if runs:
            self._stores.check(layer)
        given, launches = launches, self._stores.taking_part(launches)
        uses = uses_of_each(launches)
        self._make(launches, uses, frozenset(), runs=runs)
        tables = self._tables(uses) if runs else frozenset[int]()
        if tables:
            self._make(launches, uses, tables, runs=runs)
        if runs and (words := self.outside(given)):
            raise KernelError(words)

    def _make(
        self,
        launches: Sequence[Launch],
        uses_of_launches: Sequence[dict[str, Use]],
        tables: frozenset[int],
        *,
        runs: bool,
    ) -> None:
        """Make the op. `tables` are fields that no kernel writes, though how they are used might be writing."""
        layer, roles = self._layer, self._roles
        written = [use.one for uses in uses_of_launches for use in uses.values() if use.is_written]
        written = [one for one in written if one.facts.key not in tables]
        registered = by_key((*roles.filled, *roles.outputs, *roles.internal))
        self._registered = by_key(written) | registered  # a field between kernels need not be registered
        changed = by_key(written)
        self._overwritten = tuple(one for one in roles.filled if one.facts.key in changed)
        labels = [
            {n: u.one.facts.key for n, u in uses.items() if u.one.facts.key in self._registered}
            for uses in uses_of_launches
        ]
        sources: dict[Callable[..., Any], set[str]] = {}
        for function in (launch.launcher.stage.source.function for launch in launches):
            sources[function] = sources.get(function) or find_used_names(function)
        taken = set(OURS)
        for launch, one in zip(launches, labels, strict=True):
            taken |= sources[launch.launcher.stage.source.function] - one.keys()
        self._names = {one.facts.key: identifier(one.name, taken) for one in self._registered.values()}
        self._before = {one.facts.key: identifier(f"{one.name}_before", taken) for one in self._overwritten}
        self._batch = identifier("batch", taken)
        shown = by_key((*(one for one in roles.filled if one not in self._overwritten), *roles.outputs))
        used = None if runs else {key for one in labels for key in one.values()}
        self._filled, self._outputs = (
            tuple(one for one in fields if used is None or one.facts.key in used)
            for fields in (roles.filled, roles.outputs)
        )
        self._between = tuple(self._registered[key] for key in by_key(written) if key not in shown)
        if runs:
            self._check({key for one in labels for key in one.values()})
        arrays = shown | by_key(self._between)
        links = self._link_launches(launches, labels, arrays.keys(), taken)
        self._arguments = [link.names for link in links]
        handed = self._collect_handed_arrays(launches)
        kernels = [launch.launcher.stage.kernel for launch in launches]
        begun = self._find_initial_fields(launches, uses_of_launches) if runs else []
        starts = [start_kernel(one, self._names[one.facts.key]) for one in begun]
        copies = [*(self._copy(one) for one in self._overwritten), *starts]
        moved = [link if link.again is None else link._replace(again=link.again + len(copies)) for link in links]
        self.op = Op(
            [*(kernel for kernel, _ in copies), *kernels],
            self._spec(_array_item(name, tensor, element) for name, (tensor, element) in handed.items()),
            OpOptions(
                scratch=self._items(self._between),
                init={self._names[one.facts.key]: "empty" for one in (*self._overwritten, *begun)},
                name=layer,
                order="kernel",  # `_list_arguments` gives them by `Op.arguments`
                links=[*(link for _, link in copies), *moved],
                adjoint=self._adjoint,
                detached=self._find_detached_outputs(),
                unrun=not runs,
            ),
        )
        self._check_followed(arrays, len(starts))
        self._foresight = Foresight(self.op, self._instead)

    def _find_initial_fields(self, launches: Sequence[Launch], uses: Sequence[dict[str, Use]]) -> list[LayerField]:
        """Fields whose content a call begins with: those that are not cleared, and not replaced at once."""
        filled = by_key(self._roles.filled)
        made = [one for key, one in by_key((*self._outputs, *self._between)).items() if key not in filled]
        held = [one for one in made if one.facts.key not in self._cleared]
        return [one for one in held if not is_replaced_first(one, launches, uses)]

    def _tables(self, uses_of_launches: Sequence[dict[str, Use]]) -> frozenset[int]:
        """Fields between kernels that no kernel writes after all: they keep what they hold."""
        doubtful = {use.one.facts.key for uses in uses_of_launches for use in uses.values() if not use.is_followed}
        between = {one.facts.key for one in self._between}
        return frozenset(key for key in doubtful & between if not self._foresight.is_written(self._names[key]))

    def __call__(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results of one call."""
        RECORDED.refuse(self._layer)
        last, prepared = self._last
        if launches is not last:
            given = None if any([one.bound.tensors for one in launches]) else self._number_values(launches)  # noqa: C419
            prepared = None if given is None else self.op.prepare(given)
            self._last = launches, prepared
        if prepared is not None and not is_tracing() and current_watch() is None:
            named = dict(zip(self.filled_names, self._memory(memory), strict=True))
            return tuple(prepared(named))
        result = self.op(*self._list_arguments(launches, memory))
        return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    def _number_values(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """Arguments of the op that are no arrays, where launches are given none."""
        values = self._values(self._stores.taking_part(launches))
        return {name: values[name] for name in self.op.arguments if name in values}

    def _memory(self, memory: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What filled fields are filled with, as the op takes it."""
        pairs = zip(self._roles.filled, memory, strict=True)
        return [tensor.detach() if one.is_silent else tensor for one, tensor in pairs]

    def examine(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> Examination:
        """The op's call, laid open for who checks it."""
        return examine_layer(self.op, self._list_arguments(launches, memory), {})

    def refusal(
        self, launches: Sequence[Launch], memory: Sequence[torch.Tensor], active: Sequence[LayerField]
    ) -> NotCovered | None:
        """Why no gradient by these filled fields is generated; None where one is."""
        names = frozenset(self._filled_name(one) for one in active if one.facts.dtype.is_floating_point)
        # Looking at a kernel must not change torch's random numbers.
        with torch.random.fork_rng(devices=[]):
            return examine_layer(self.op, self._list_arguments(launches, memory), {}).refusal(names)

    def _list_arguments(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> list[Any]:
        """The op's arguments, in their order."""
        launches = self._stores.taking_part(launches)
        values = self._values(launches)
        for launch, names in zip(launches, self._arguments, strict=True):
            for place, name in enumerate(launch.launcher.signature.arrays):
                tensor = launch.bound.tensors[place]
                # A backward pass reads the array again, and torch does not see what NumPy changes.
                values[names[name]] = tensor.clone() if place in launch.bound.of_numpy else tensor
        values |= dict(zip(self.filled_names, self._memory(memory), strict=True))
        return [values[name] for name in self.op.arguments]

    @property
    def filled_fields(self) -> tuple[LayerField, ...]:
        """The fields whose memory a call is given, in order."""
        return self._roles.filled

    @property
    def filled_names(self) -> tuple[str, ...]:
        """What the op calls its inputs, in the order of the filled fields."""
        return tuple(self._filled_name(one) for one in self._roles.filled)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the op calls its outputs, in the order of the fields."""
        return tuple(self._names[one.facts.key] for one in self._roles.outputs)

    def explain(self) -> str:
        """What the op does, for people."""
        return f"on tensors\n\n{self.op.explain()}"

    def foresee(self, launches: Sequence[Launch], active: Sequence[LayerField]) -> tuple[int, ...]:
        """Depths of the kernels' gradient stacks. Raises GradientError where these fields' gradients cannot be had."""
        launches = self._stores.taking_part(launches)
        values = self._values(launches)
        self._foresight.check(frozenset(self._filled_name(one) for one in active), values)
        return self._stores.expand_to_launches(
            self._foresight.stacks(self._shapes(launches), values)[len(self._overwritten) :]
        )

    def outside(self, launches: Sequence[Launch]) -> str:
        """What there is to say of an index that is surely outside its field; "" where there is none."""
        launches = self._stores.taking_part(launches)
        outside = self._foresight.outside(self._shapes(launches), self._values(launches))
        if outside is None:
            return ""
        words = f"kernel `{outside.kernel}` of {self._layer} uses an index of `{outside.array}` that is outside"
        rows = [
            ("at", outside.place),
            (f"axis {outside.axis}", f"index {outside.position}, of {outside.size} elements"),
        ]
        lang = launches[0].launcher.stage.module_name
        axes = f"dense({lang}.l, T).dense({lang}.i, n)"
        remedy = f"Axes come in the order of their letters: what `{axes}` places is `x[i, t]`."
        return refusal(words, rows, remedy)

    def _shapes(self, launches: Sequence[Launch]) -> dict[str, tuple[int, ...]]:
        """Shapes of all arrays, by the op's names."""
        shapes = {self._names[key]: one.memory_shape for key, one in self._registered.items()}
        shapes |= {self._before[one.facts.key]: one.memory_shape for one in self._overwritten}
        return shapes | {name: tuple(one.shape) for name, (one, _) in self._collect_handed_arrays(launches).items()}

    def _values(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """Arguments that are no arrays, by the op's names for them."""
        values: dict[str, Any] = {}
        for launch, names in zip(launches, self._arguments, strict=True):
            given = {**launch.bound.scalars, **launch.bound.templates}
            values |= {names[name]: value for name, value in given.items() if names[name] not in self._names.values()}
        return values

    def _collect_handed_arrays(self, launches: Sequence[Launch]) -> dict[str, tuple[torch.Tensor, tuple[int, ...]]]:
        """Arrays among the launches' arguments, with dims of their elements, by the op's names for them."""
        arrays = {}
        for launch, names in zip(launches, self._arguments, strict=True):
            parameters = launch.launcher.stage.parameters
            for name, tensor in zip(launch.launcher.signature.arrays, launch.bound.tensors, strict=True):
                arrays[names[name]] = tensor, parameters[name].element
        return arrays

    # Checking ---------------------------------------------------------------------------------
    def _check(self, used: set[int]) -> None:
        for one in self._registered.values():
            facts = one.facts
            is_moved = any(facts.offset) and not self._begins_at_zero
            if not facts.is_dense or is_moved or (facts.is_matrix and len(facts.element) == 1):
                words = f"field `{one.name}` of {self._layer} is laid out in a way that a tensor has not"
                rows = [("dense", str(facts.is_dense)), ("offset", str(facts.offset)), ("element", str(facts.element))]
                remedy = "Place it dense and without an offset, or leave out batched=True and on_tensors=True."
                raise KernelError(refusal(words, rows, remedy))
        for one in self._roles.internal:
            if one.needs_grad and one not in self._between and one.facts.key in used:
                words = (
                    f"internal field `{one.name}` of {self._layer} needs a gradient, which cannot go to a field here"
                )
                remedy = "Register it by register_weight_field, or with needs_grad=False."
                raise GradientError(refusal(words, remedy=remedy))

    def _check_followed(self, arrays: Container[int], starts: int) -> None:
        """Refuse a field that was reached in a way which is not seen through: it would be another memory there.

        The first `starts` fields are those that our own kernels read, one each; copies of inputs read none.
        """
        engine = self._roles.filled[0].engine
        leaves = [(use, *leaf) for use in self.op.fields[starts:] for leaf in engine.leaf_fields(use.field, use.name)]
        for use, name, leaf in leaves:
            if place_field(leaf, name, None, False, self._layer).facts.key in arrays:
                words = f"`{use.function}` of {self._layer} uses the field `{name}` in a way that no array can replace"
                remedy = "Name the field by itself, `x` or `self.x`, or leave out batched=True and on_tensors=True."
                raise KernelError(refusal(words, [("at", use.place)], remedy))

    # Making the op ----------------------------------------------------------------------------
    def _link_launches(
        self,
        launches: Sequence[Launch],
        labels: Sequence[dict[str, int]],
        arrays: Container[int],
        taken: set[str],
    ) -> list[Links]:
        """How each launch's arrays and arguments are called. A kernel without templates is analysed once."""
        first: dict[object, tuple[int, Links]] = {}
        all_links: list[Links] = []
        for number, (launch, one) in enumerate(zip(launches, labels, strict=True)):
            stage = launch.launcher.stage
            if stage in first and not launch.bound.templates and not launch.bound.tensors:
                place, links = first[stage]
                own = {name: f"{stage.name}_{name}_{number}" for name in launch.bound.scalars}
                own = {name: wish if wish not in taken else identifier(wish, taken) for name, wish in own.items()}
                taken |= set(own.values())
                all_links.append(links._replace(names={**links.names, **own}, again=place))
                continue
            links = self._links(launch, {label: key for label, key in one.items() if key in arrays}, taken)
            all_links.append(links._replace(gradients=self._stores.texts[number]))
            first[stage] = number, all_links[-1]
        return all_links

    def _links(self, launch: Launch, labels: dict[str, int], taken: set[str]) -> Links:
        own = launch.launcher.stage.parameters
        names, fields = {}, {}
        for label, key in labels.items():
            if label in own:
                names[label] = self._names[key]
            else:
                fields[label] = FieldArray(self._names[key], self._registered[key].facts)
        for parameter in own:
            names.setdefault(parameter, identifier(f"{launch.launcher.stage.name}_{parameter}", taken))
        elements = {self._names[key]: self._registered[key].facts.element for key in labels.values()}
        return Links(names, elements, fields, launch.bound.templates)

    def _spec(self, arrays: Iterable[str]) -> str:
        inputs = ", ".join([*(self._item(one, self._filled_name(one)) for one in self._filled), *arrays])
        return f"{inputs} -> {self._items(self._outputs)}"

    def _items(self, fields: Sequence[LayerField]) -> str:
        return ", ".join(self._item(one, self._names[one.facts.key]) for one in fields)

    def _item(self, one: LayerField, name: str) -> str:
        """A field in the language of specs. What a batched call makes is batched."""
        is_batched = one.is_batched or (one not in self._roles.filled and any(i.is_batched for i in self._roles.filled))
        dims = [f"*{self._batch}"] * is_batched + [str(size) for size in one.memory_shape]
        return f"{name}[{', '.join(dims)}]: {NAMES[one.facts.dtype]}"

    def _filled_name(self, one: LayerField) -> str:
        """What an input is called. Where kernels change its field, that is an array made of the input."""
        return self._before.get(one.facts.key) or self._names[one.facts.key]

    def _copy(self, one: LayerField) -> tuple[Any, Links]:
        """The kernel that stands for filling a field which the others change."""
        before, name = self._before[one.facts.key], self._names[one.facts.key]
        tree = parse_statement(_COPY)
        assert isinstance(tree, ast.FunctionDef)
        lang: Any = one.engine.lang
        function, _ = build(tree, {"_lang": lang}, "filled")
        elements = {before: one.facts.element, name: one.facts.element}
        return lang.kernel(function), Links({"source": before, "target": name}, elements, copies=(name, before))

    def _find_detached_outputs(self) -> tuple[str, ...]:
        made = (*self._roles.outputs, *self._between)
        floats = [one for one in made if one.facts.dtype.is_floating_point]
        return tuple(self._names[one.facts.key] for one in floats if one.is_silent)


def _array_item(name: str, tensor: torch.Tensor, element: tuple[int, ...]) -> str:
    """An array that a kernel is given, in the language of specs: of any size."""
    dims = ["_"] * (tensor.dim() - len(element)) + [str(size) for size in element]
    return f"{name}[{', '.join(dims)}]: {NAMES[tensor.dtype]}"


_COPY = """
def filled(source: _lang.template(), target: _lang.template()):
    for place in _lang.grouped(target):
        target[place] = source[place]
"""


def foresight(
    layer: str, roles: Roles, launches: Sequence[Launch], *, is_wished: bool
) -> OpProgram | KernelError | SpecError:
    """The op that kernels on fields would make, for its checks; or why they make none, so that nothing is foreseen.

    `is_wished` says that the engine's gradient was asked for, where another might be had.
    """

    def instead() -> str:
        return "leave out `adjoint='engine'`" if is_wished else "make the kernels an op, `ts.op`"

    try:
        return OpProgram(layer, roles, launches, runs=False, instead=instead)
    except (KernelError, SpecError) as reason:  # the engine runs what no op can be made of: a list of fields, for one
        return reason
