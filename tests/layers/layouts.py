"""Layouts: every way to place a field, and every way to ask for its gradient.

A `Row` is a way to place the three fields of `y = x * x * w`; a declaration (below `Site`) is a way to give
them gradients. What a layer makes of the two is `layouts_outcome`'s business.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

SIZE = 6


class NotWritable(Exception):
    """There is no way to write this cell, so that nothing can be told of it."""


# Ways to place ------------------------------------------------------------------------------------
def dense(lang, root):
    return root.dense(lang.i, SIZE)


def nested(lang, root):
    return root.dense(lang.i, 3).dense(lang.i, 2)


def columns_first(lang, root):
    return root.dense(lang.j, 3).dense(lang.i, 2)


def pointer(lang, root):
    return root.pointer(lang.i, SIZE)


def pointer_to_dense(lang, root):
    return root.pointer(lang.i, 3).dense(lang.i, 2)


def pointer_to_three(lang, root):
    return root.pointer(lang.i, 2).dense(lang.i, 3)


def bitmasked(lang, root):
    return root.bitmasked(lang.i, SIZE)


def dynamic(lang, root):
    return root.dynamic(lang.i, SIZE)


def dense_of_dynamic(lang, root):
    return root.dense(lang.i, 3).dynamic(lang.j, 2)


def hashed(lang, root):
    return root._hash(lang.i, SIZE)  # `ti.root.hash` is no more, in either engine


def nothing(lang, root):
    return root


def numbers(lang, **options):
    return lang.field(lang.f64, **options)


def vectors(lang, **options):
    return lang.Vector.field(3, lang.f64, **options)


def matrices(lang, **options):
    return lang.Matrix.field(2, 3, lang.f64, **options)


def structs(lang, **options):
    return lang.Struct.field({"x": lang.f64, "w": lang.f64, "y": lang.f64}, **options)


def dataclasses(lang, **options):
    @lang.dataclass
    class Sample:
        x: lang.f64
        w: lang.f64
        y: lang.f64

    return Sample.field(**options)


@dataclass(frozen=True)
class Row:
    """A way to place fields.

    Attributes:
        code: as a user writes it; the row's name.
        make: one field, not placed yet unless `options` gives it a shape.
        block: the node that a field is placed in; None where the engine makes one, for a shape.
        options: of `make`, and `offset` of placing.
        is_shared: one block for all fields, so that their numbers alternate in memory.
        is_built: in a FieldsBuilder instead of the root.
        shape: of the tensors.
    """

    code: str
    make: Callable[..., Any]
    block: Callable[..., Any] | None
    options: dict[str, Any] = field(default_factory=dict)
    is_shared: bool = False
    is_built: bool = False
    shape: tuple[int, ...] = (SIZE,)

    @property
    def is_struct(self) -> bool:
        return self.make in (structs, dataclasses)


SOA = {"shape": SIZE, "layout": "SOA"}
ROWS = (
    Row("`ti.field(f64, shape=6)`", numbers, None, {"shape": SIZE}),
    Row("`ti.field(f64, shape=())`", numbers, None, {"shape": ()}, shape=()),
    Row("`ti.field(f64, shape=(2, 3), order='ji')`", numbers, None, {"shape": (2, 3), "order": "ji"}, shape=(2, 3)),
    Row("`ti.field(f64, shape=6, offset=-2)`", numbers, None, {"shape": SIZE, "offset": -2}),
    Row("`ti.Vector.field(3, f64, shape=6)`", vectors, None, {"shape": SIZE}, shape=(SIZE, 3)),
    Row("`ti.Vector.field(3, f64, shape=6, layout=ti.Layout.SOA)`", vectors, None, SOA, shape=(SIZE, 3)),
    Row("`ti.Matrix.field(2, 3, f64, shape=6)`", matrices, None, {"shape": SIZE}, shape=(SIZE, 2, 3)),
    Row("`ti.Struct.field({...}, shape=6)`", structs, None, {"shape": SIZE}),
    Row("`ti.Struct.field({...}, shape=6, layout=ti.Layout.SOA)`", structs, None, SOA),
    Row("`ti.dataclass` `.field(shape=6)`", dataclasses, None, {"shape": SIZE}),
    Row("`ti.root.place(x)`", numbers, nothing, shape=()),
    Row("`ti.root.dense(ti.i, 6).place(x)`", numbers, dense),
    Row("`ti.root.dense(ti.i, 3).dense(ti.i, 2).place(x)`", numbers, nested),
    Row("`ti.root.dense(ti.j, 3).dense(ti.i, 2).place(x)`", numbers, columns_first, shape=(2, 3)),
    Row("`ti.root.dense(ti.i, 6).place(x, offset=-2)`", numbers, dense, {"offset": -2}),
    Row("`ti.root.dense(ti.i, 6).place(x, w, y)`", numbers, dense, is_shared=True),
    Row("`ti.root.dense(ti.i, 6).place(vectors)`", vectors, dense, shape=(SIZE, 3)),
    Row("`ti.root.dense(ti.i, 6).place(matrices)`", matrices, dense, shape=(SIZE, 2, 3)),
    Row("`ti.root.dense(ti.i, 6).place(structs)`", structs, dense),
    Row("`ti.root.pointer(ti.i, 6).place(x)`", numbers, pointer),
    Row("`ti.root.pointer(ti.i, 3).dense(ti.i, 2).place(x)`", numbers, pointer_to_dense),
    Row("`ti.root.pointer(ti.i, 3).dense(ti.i, 2).place(x, w, y)`", numbers, pointer_to_dense, is_shared=True),
    Row("`ti.root.pointer(ti.i, 2).dense(ti.i, 3).place(x)`", numbers, pointer_to_three),
    Row("`ti.root.pointer(ti.i, 6).place(vectors)`", vectors, pointer, shape=(SIZE, 3)),
    Row("`ti.root.bitmasked(ti.i, 6).place(x)`", numbers, bitmasked),
    Row("`ti.root.dynamic(ti.i, 6).place(x)`", numbers, dynamic),
    Row("`ti.root.dense(ti.i, 3).dynamic(ti.j, 2).place(x)`", numbers, dense_of_dynamic, shape=(3, 2)),
    Row("`ti.root.hash(ti.i, 6).place(x)`", numbers, hashed),
    Row("`ti.FieldsBuilder()`: `.dense(ti.i, 6).place(x)`", numbers, dense, is_built=True),
    Row("`ti.FieldsBuilder()`: `.pointer(ti.i, 3).dense(ti.i, 2).place(x)`", numbers, pointer_to_dense, is_built=True),
)


# Ways to ask for a gradient -----------------------------------------------------------------------
@dataclass
class Site:
    """Where the fields of one cell are built; `names` is always some of "xwy", one letter a field."""

    lang: ModuleType
    row: Row
    fields: dict[str, Any] = field(default_factory=dict)
    later: Callable[[], None] | None = None
    """What happens after the fields were registered."""

    struct: Any = None

    @cached_property
    def root(self) -> Any:
        return self.lang.FieldsBuilder() if self.row.is_built else self.lang.root

    def make(self, names: str, *, needs_grad: bool = False) -> None:
        """Make fields, which are placed already where the row gives a shape."""
        options = dict(self.row.options)
        if self.row.block is not None:
            options.pop("offset", None)
        if options.get("layout"):
            options["layout"] = self.lang.Layout.SOA
        if needs_grad:
            options["needs_grad"] = True
        if self.row.is_struct:
            self._make_struct(names, options)
            return
        for name in names:
            self.fields[name] = self.row.make(self.lang, **options)

    def _make_struct(self, names: str, options: dict[str, Any]) -> None:
        if names != "xwy":
            raise NotWritable("one struct holds them all")
        self.struct = self.row.make(self.lang, **options)
        self.fields = {name: self.struct.get_member_field(name) for name in names}

    def place(self, names: str) -> None:
        """Place fields alone."""
        if self.row.block is not None:
            self._put([[one] for one in self._of(names)], self.row.block)

    def place_with_gradients(self, names: str) -> None:
        """Place each field and its gradient next to each other."""
        if self.row.block is None:
            raise NotWritable("the engine has placed the field")
        self._put([[one, one.grad] for one in self._of(names)], self.row.block)

    def place_gradients(self, names: str, block: Callable[..., Any] | None = None) -> None:
        """Place the gradients of fields, which are placed already, in `block`: of the same kind, unless given."""
        chosen = block or self.row.block or self._like_shape
        self._put([[one.grad] for one in self._of(names)], chosen)

    def _like_shape(self, lang: ModuleType, root: Any) -> Any:
        sizes = self.row.options["shape"]
        if sizes == ():
            return root
        return root.dense(lang.i, sizes) if isinstance(sizes, int) else root.dense(lang.ij, sizes)

    def _of(self, names: str) -> list[Any]:
        return [self.struct] if self.struct is not None else [self.fields[name] for name in names]

    def _put(self, groups: list[list[Any]], block: Callable[..., Any]) -> None:
        offset = {"offset": self.row.options["offset"]} if "offset" in self.row.options else {}
        if self.row.is_shared:
            groups = [[one for group in groups for one in group]]
        for group in groups:
            block(self.lang, self.root).place(*group, **offset)

    def finish(self) -> None:
        """Finish the layout: nothing more is placed."""
        if self.row.is_built:
            self.root.finalize()


def none(site: Site) -> None:
    site.make("xwy")
    site.place("xwy")


def declared(site: Site) -> None:
    site.make("xwy", needs_grad=True)
    site.place("xwy")


def beside(site: Site) -> None:
    site.make("xwy")
    site.place_with_gradients("xwy")


def apart(site: Site) -> None:
    site.make("xwy")
    site.place("xwy")
    site.place_gradients("xwy")


def apart_and_dense(site: Site) -> None:
    if site.row.block in (None, nothing, dense):
        raise NotWritable("it is dense already")
    site.make("xwy")
    site.place("xwy")
    is_plane = len(site.row.shape) == 2 and site.row.make is numbers
    plane = site.row.shape
    site.place_gradients("xwy", lambda lang, root: root.dense(lang.ij, plane) if is_plane else dense(lang, root))


def declared_and_beside(site: Site) -> None:
    site.make("xwy", needs_grad=True)
    site.place_with_gradients("xwy")


def lazy(site: Site) -> None:
    site.make("xwy")
    site.place("xwy")
    site.root.lazy_grad()


def declared_and_lazy(site: Site) -> None:
    site.make("xwy", needs_grad=True)
    site.place("xwy")
    site.root.lazy_grad()


def beside_and_lazy(site: Site) -> None:
    site.make("xwy")
    site.place_with_gradients("xwy")
    site.root.lazy_grad()


def lazy_before_output(site: Site) -> None:
    site.make("xw")
    site.place("xw")
    site.root.lazy_grad()
    site.make("y")
    site.place("y")


def lazy_before_input(site: Site) -> None:
    site.make("xy")
    site.place("xy")
    site.root.lazy_grad()
    site.make("w")
    site.place("w")


def lazy_after_registering(site: Site) -> None:
    if site.row.is_built:
        raise NotWritable("the builder is finalized")
    site.make("xwy")
    site.place("xwy")
    site.later = site.root.lazy_grad


def not_output(site: Site) -> None:
    _mixed(site, "xw", "y")


def not_input(site: Site) -> None:
    _mixed(site, "wy", "x")


def _mixed(site: Site, graded: str, plain: str) -> None:
    if site.row.is_struct:
        raise NotWritable("a struct's members are alike")
    by_hand = site.row.block is not None
    site.make(graded, needs_grad=not by_hand)
    site.make(plain)
    if by_hand:
        site.place_with_gradients(graded)
        site.place(plain)


Declaration = Callable[[Site], None]
ALL: dict[str, Declaration] = {
    "nothing": none,
    "`needs_grad=True`": declared,
    "`.place(x, x.grad)`": beside,
    "`x.grad` placed apart, alike": apart,
    "`x.grad` placed apart, dense": apart_and_dense,
    "`lazy_grad()`": lazy,
    "`lazy_grad()` after registering": lazy_after_registering,
    "`needs_grad=True`, `.place(x, x.grad)`": declared_and_beside,
    "`needs_grad=True`, `lazy_grad()`": declared_and_lazy,
    "`.place(x, x.grad)`, `lazy_grad()`": beside_and_lazy,
}
"""Ways to ask for the gradients of all three fields."""
SOME: dict[str, Declaration] = {
    "all but the output `y`": not_output,
    "all but the input `x`": not_input,
    "`lazy_grad()` before `y` is placed": lazy_before_output,
    "`lazy_grad()` before `w` is placed": lazy_before_input,
}
"""Ways that leave one out, meant or not."""
DECLARATIONS = ALL | SOME
