"""Tangents: the derivative of an op in a direction, as an op of its own.

For y = f(x) the tangent op maps (x, x_dot) to y_dot. It is generated from the same kernels. Users do not call it:
operators do, in forward mode and when a gradient is differentiated. It has a tangent op and a gradient itself, so
derivatives of any order result from applying the same two passes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..._cache import digest_of
from ..._errors import GradientError, refusal
from ...compiling import remember
from ...engines import COMPILING
from ...frontend.lowering import LoweredKernel
from ...ir import NotCovered, nodes, walk
from ...passes import clean_up_tangent, generate_tangent, rename_arrays
from ...passes.tangent import Tangent, UnneededOptions
from ...spec import Item, Sizing, Spec
from .._buffers import Buffer
from .._core import Call, Core
from .._key import CallKey
from .._signature import Signature, compute_lazy_values, is_steady
from ._derived_core import DerivedCore
from ._room import Room, add_room


class TangentCore(DerivedCore):
    """The derivative of a core in the direction of tangents of some of its inputs.

    Its inputs are those of the core, then a tangent for each of `active`; its outputs are the tangents of the core's
    floating outputs. Outputs and scratch of the core itself are computed in memory of its own.
    """

    hands_out = False

    def __init__(self, base: Core, active: frozenset[str]) -> None:
        self.active = tuple(name for name in base.signature.arrays if name in active)
        made = base.signature.allocations
        self.hidden = frozenset(made) | base.hidden
        self.moving = tuple(name for name in base.signature.outputs if not is_steady(base.signature, name))
        self._taken = {*base.signature.order, *base.signature.items, *base.hidden}
        self.dots: dict[str, str] = {}
        for name in (*self.active, *made, *sorted(base.hidden)):
            self.name_tangent(name)
        self.hidden |= {self.dots[name] for name in self.hidden if name not in self.moving}
        self._beside: dict[str, str] = {}
        self._room: dict[Any, Room] = {}
        signature = _make_signature(base.signature, self)
        super().__init__(base, signature)

    def name_tangent(self, name: str) -> str:
        """Return the name of an array's tangent. It is chosen when it is first asked for.

        Some arrays are known only once the kernels are generated, such as those that hold candidates for a maximum.
        """
        if name not in self.dots:
            self.dots[name] = _make_name(f"{name}_dot", "_dot", self._taken)
        return self.dots[name]

    # What a call is ---------------------------------------------------------------------------

    def make_call(self, base: Call) -> Call:
        """Return the call of the tangent op that goes with a call of the base."""
        names = self.base.signature.arrays
        places = [names.index(name) for name in self.active]
        batched = base.batched | {self.dots[name] for name in self.active if name in base.batched}
        return replace(
            base,
            core=self,
            shapes=base.shapes + tuple(base.shapes[place] for place in places),
            dtypes=base.dtypes + tuple(base.dtypes[place] for place in places),
            batched=batched,
        )

    def propagate_batch(self, batched: frozenset[str]) -> frozenset[str]:
        """Return the inputs that have a batch dimension if these have one. A tangent has one if its input has."""
        pairs = [(name, self.dots[name]) for name in self.active]
        batched |= self.base.propagate_batch(batched & frozenset(self.base.signature.arrays))
        return batched | {name for pair in pairs if batched & {*pair} for name in pair}

    def plan_buffers(self, call: Call) -> list[Buffer]:
        buffers = {buffer.name: buffer for buffer in self.base.plan_buffers(self.base_call(call))}
        return [buffers[name]._replace(name=self.dots[name]) for name in self.moving]

    def size_values(self, call: Call) -> dict[str, Any]:
        """Return the values that determine sizes: scalars too, since the room for candidates may depend on any."""
        return {**self.base.size_values(self.base_call(call)), **call.scalars}

    def key(self, call: Call) -> CallKey:
        base = self.base.key(self.base_call(call))
        pairs = [(name, dot) for name, dot in self.dots.items() if name in base.shapes]
        shapes = {**base.shapes, **{dot: base.shapes[name] for name, dot in pairs}}
        dtypes = {**base.dtypes, **{dot: base.dtypes[name] for name, dot in pairs}}
        batched = base.batched | {dot for name, dot in pairs if name in base.batched}
        return replace(base, signature=self.signature, shapes=shapes, dtypes=dtypes, batched=batched)

    def _find_sizing(self, call: Call) -> Sizing:
        """Return the base's sizing with the tangents, each as large as its array."""
        base_call = self.base_call(call)
        sizing, count = base_call.sizing, len(base_call.shapes)
        shapes = dict(sizing.shapes)
        for name, shape in sizing.shapes.items():
            if name in self.dots or name not in self.base.signature.arrays:
                shapes[self.name_tangent(name)] = shape
        # Generating the kernels determines the arrays that maxima need.
        self._kernels_of(call)
        for name, like in self._beside.items():
            shapes[name] = shapes[like]
        plain = Sizing(shapes, lambda given, values: sizing.solve(given[:count], values), sizing.batch, sizing.symbols)
        key = self.find_source(call).key
        return add_room(plain, self._room.get(_make_kernel_key(key), {}), call, is_looped=key.is_looped)

    def sizing(self, call: Call) -> Sizing:
        """Return the sizing of calls like this one.

        If candidates for a maximum are kept, it depends on more than the base's cache distinguishes, and is not cached.
        """
        self._kernels_of(call)
        return self._find_sizing(call) if self.keeps_candidates else super().sizing(call)

    @property
    def keeps_candidates(self) -> bool:
        """True if a kernel stores the candidates of a maximum or minimum. Includes kernels of the op differentiated."""
        return bool(self._room) or (isinstance(self.base, TangentCore) and self.base.keeps_candidates)

    # Kernels ----------------------------------------------------------------------------------

    def kernels(self, key: CallKey) -> list[LoweredKernel]:
        """Generate the tangents of the base's kernels.

        Raises:
            NotCovered: a tangent cannot be generated.
        """
        signature = self.base.signature
        moving = {*self.active} - signature.detached
        derived = []
        by_order: dict[str, NotCovered] = {}
        room: dict[str, tuple[int, nodes.Expr]] = {}
        for kernel, fields in self.base.kernels(replace(key, signature=signature)):
            active = frozenset(moving) & kernel.arrays.keys()
            made = self._generate(kernel, active, by_order)
            by_order |= made.disordered
            names = {dot: self.name_tangent(name) for name, dot in made.companions.items()}
            # Each kernel has its own such arrays, which start at zero, and so has the tangent of a tangent.
            taken = {*kernel.arrays}
            own = (*made.scratch, *made.room)
            beside = {name: _make_name(f"{name}_of_{len(derived)}", "_again", taken) for name in own}
            self._beside |= {beside[name]: of for name, of in made.scratch.items()}
            room |= {beside[name]: (len(derived), size) for name, size in made.room.items()}
            moving |= made.companions.keys()
            derived.append(LoweredKernel(rename_arrays(made.kernel, names | beside), fields))
        if room:
            self._room[_make_kernel_key(key)] = room
        return self._drop_unneeded(derived)

    def _generate(self, kernel: nodes.Kernel, active: frozenset[str], by_order: Mapping[str, NotCovered]) -> Tangent:
        """Generate the tangent of a kernel, or read it from disk."""
        inert, engine = self.base.signature.detached, self.base.signature.firsts[0].engine

        def compute() -> Tangent:
            return generate_tangent(kernel, active, inert=inert, disordered=by_order)

        # The reasons in `by_order` cannot be stored on disk.
        return compute() if by_order else remember(engine, "tangent", lambda: (kernel, active, inert), compute)

    def _drop_unneeded(self, derived: list[LoweredKernel]) -> list[LoweredKernel]:
        """Remove from the kernels what neither the results nor a later kernel reads."""
        results = {self.dots[name] for name in self.moving}
        needed: set[str] = set()
        kept: list[LoweredKernel] = []
        for kernel, fields in reversed(derived):
            idle = frozenset(kernel.arrays.keys() - {*self.signature.arrays} - results - needed)
            kernel = clean_up_tangent(kernel, UnneededOptions(idle=idle, needed=frozenset(needed)))
            needed |= walk.reads(kernel.body)
            kept.append(LoweredKernel(kernel, fields))
        return kept[::-1]

    def needs(self, call: Call) -> frozenset[str]:
        """Return the inputs whose values the tangent op reads. Raise GradientError if no tangent can be generated."""
        kernels = self._kernels_of(call)
        return frozenset(self.signature.arrays) & {name for kernel, _ in kernels for name in walk.reads(kernel.body)}

    def _kernels_of(self, call: Call) -> Sequence[LoweredKernel]:
        """Return the kernels of calls like this one, generated once. Raise GradientError if that is not possible."""
        try:
            return self.find_source(call).kernels
        except NotCovered as reason:
            words = (
                f"op `{self.signature.op}` uses a construct for which no forward-mode or "
                "second derivative can be generated"
            )
            rows = [("construct", reason.construct), ("at", reason.place)]
            raise GradientError(refusal(words, rows, f"{reason.remedy}.")) from None


def find_tangent(core: Core, active: frozenset[str]) -> TangentCore:
    """Return the tangent op of a core for these active inputs. It is made once."""
    tangent = core.tangents.get(active)
    if tangent is not None:
        return tangent
    with COMPILING:
        if active not in core.tangents:
            made = TangentCore(core, active)
            core.operators.define(made, lambda: digest_of(core.content, *sorted(active)), "_tangent")
            core.tangents[active] = made
        return core.tangents[active]


def _make_kernel_key(key: CallKey) -> object:
    """Return the part of a key that determines a core's kernels."""
    return key.variants, key.is_looped


def _make_name(name: str, suffix: str, taken: set[str]) -> str:
    """Return a name that is not in `taken`, and add it there: `name`, with the suffix as often as needed."""
    while name in taken:
        name += suffix
    taken.add(name)
    return name


def _make_signature(base: Signature, core: TangentCore) -> Signature:
    """Return the base's signature with tangents."""
    items = base.items

    def make_tangent_items(names: Sequence[str]) -> tuple[Item, ...]:
        return tuple(replace(items[name], name=core.dots[name], label="", dtype=None) for name in names)

    spec = Spec(
        base.spec.text, "", (*base.spec.inputs, *make_tangent_items(core.active)), make_tangent_items(core.moving), ()
    )
    dots = tuple(core.dots[name] for name in core.active)
    signature = replace(
        base,
        spec=spec,
        order=(*base.order, *dots),
        arrays=(*base.arrays, *dots),
        init={},
        detached=base.detached & frozenset(base.arrays),
        auxiliary=frozenset(core.dots[name] for name in core.moving if name in base.auxiliary),
        hidden_sizes=base.size_names,
    )
    return compute_lazy_values(signature)
