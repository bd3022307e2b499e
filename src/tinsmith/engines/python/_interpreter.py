"""The methods that a rewritten kernel calls while it runs: assignments, operators, calls, loops.

`rewrite` replaces the kernel's operators by calls of an `Interpreter`, which knows one engine's language and its
default types.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ..._errors import KernelError, refusal
from .._fields import gradient_field
from .._language import Language
from ._arithmetic import Arithmetic
from ._assignments import Assignments
from ._constructors import Constructors
from ._containers import UNSET, Ranges
from ._engine_functions import BUILTINS, SPECIAL, TABLE, fill_matrix
from ._memory import ArrayView, FieldView, StructField
from ._numbers import KINDS
from ._operations import Operations
from ._values import BoundFunction, Matrix, Struct

_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "divide_down": "//",
    "remainder": "%",
    "power": "pow",
    "shift_left": "<<",
    "shift_right": ">>",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
"""Binary operators, by the method that a rewritten kernel calls for them."""
_MATRICES = ("lang.matrix.Vector", "lang.matrix.Matrix")
_NATIVE = frozenset({builtins.tuple, builtins.list, builtins.zip, builtins.enumerate, builtins.print, builtins.range})


class Interpreter(Assignments):
    """One engine's language with one kind of arithmetic.

    Args:
        language: that of the engine that the kernels are written for.
        arithmetic: operations on scalars, with the types of Python's numbers.
        translate: rewrites an engine function to a Python function, given the function, this interpreter, whether it
            is a method, and its object.
    """

    bit_and: Callable[[Any, Any], Any]
    ends_locals_with_blocks = True
    """Whether a local ends with the block that assigns it first, as in the engines' languages."""

    def __init__(
        self,
        language: Language,
        arithmetic: Arithmetic,
        translate: Callable[[Callable[..., Any], Interpreter, bool, Any], Any],
    ) -> None:
        self.engine = language.engine
        self.language = language
        self.operations = Operations(arithmetic, self.language.rows_of, self.language.matrix_operation)
        self.operations.call = self.call
        self.defaults = arithmetic.defaults
        self.casts = arithmetic.casts
        self.random = np.random.default_rng(0)
        self._translate = translate
        self._constructors = Constructors(self)
        self._known: dict[Any, Callable[..., Any]] = {}
        self._being_written: set[Any] = set()
        self._base = self
        self._written: dict[tuple[Callable[..., Any], int], tuple[Callable[..., Any], object]] = {}
        self.unset = UNSET
        names = {*_OPERATORS.values(), "min", "max"}
        self._by_operator = {name: self.operations.binary(name) for name in names}
        self._fields: dict[int, tuple[Any, ArrayView]] = {}
        self._replaced: dict[int, tuple[Any, ArrayView]] = {}
        for name, operator in _OPERATORS.items():
            setattr(self, name, self._by_operator[operator])
        self.negate = self._on_known("neg", lambda value: -value)
        self.invert = self._on_known("~", lambda value: ~value)
        self.reverse = self._on_known("not", lambda value: not value)
        self.matmul = self.operations.matmul

    def for_kernel(self) -> Interpreter:
        """Return a copy for one compiled kernel, so that functions keep the Python numbers that they were read with."""
        made = copy.copy(self)
        made._known, made._written, made._fields = dict(self._known), {}, {}
        return made

    def _on_known(self, name: str, python: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a unary operator: Python's on Python numbers, and the engine's on all other values."""
        rule = self.operations.unary(name)
        return lambda value: python(value) if type(value) in (bool, int, float) else rule(value)

    # Values --------------------------------------------------------------------------------------

    def capture(self, value: Any, name: str = "a field") -> Any:
        """Convert a Python-scope vector, matrix, struct or field to a value of the run; return others unchanged.

        `name` is the kernel's expression for it.
        """
        kind = type(value)
        if kind in KINDS or kind in (ArrayView, FieldView, Matrix, Struct, bool, int, float, str, type(None)):
            return value
        if self.engine.is_field(value):
            return self.view(value, name)
        rows = self.language.rows_of(value)
        if rows is not None:
            return self.operations.matrix(rows)
        facts = self.language.struct_of(value)
        if facts is not None:
            return Struct({name: self.let(one) for name, one in facts.members.items()}, dict(facts.methods))
        return value

    def alias(self, value: Any) -> Any:
        """Return the value of a local assigned by `ti.static`: a field's view, or the same object without a copy."""
        if isinstance(value, list | tuple):
            return type(value)([self.alias(one) for one in value])
        return self.view(value, "a field") if self.engine.is_field(value) else value

    def view(self, field: Any, name: str) -> Any:
        """Return the view of a field, whose content is copied from the engine once per launch."""
        known = self._replaced.get(id(field)) or self._fields.get(id(field))
        if known is not None:
            return known[1]
        facts = self.language.struct_of(field)
        if facts is not None:
            views = {member: self.view(one, f"{name}.{member}") for member, one in facts.members.items()}
            view: Any = StructField(views, facts.methods)
        else:
            about = self.engine.field_facts(field, name)
            if not about.is_dense:
                words = "the Python engine has no sparse fields"
                raise KernelError(refusal(words, [("field", name)], "Run the kernel on a compiled engine."))
            data = np.array(field.to_numpy())
            gradient = gradient_field(field)
            view = FieldView(name, data, about.element, self.operations, first=about.offset)
            view.find_gradient = lambda: self.view(gradient, f"the gradient of {name}")
            view.dtype = field.dtype
        self._fields[id(field)] = (field, view)
        return view

    def replace_fields(self, pairs: Iterable[tuple[Any, str, ArrayView | None]]) -> None:
        """Replace fields by arrays in the next run. The fields' own content is not changed.

        `pairs` holds for each the field, the kernel's name for it, and the array. If that is None, the kernel uses
        only the field's shape.
        """
        self._replaced = {}
        for field, name, array in pairs:
            about = self.engine.field_facts(field, name)
            data = np.array(field.to_numpy()) if array is None else array.data
            view = FieldView(name, data, about.element, self.operations, first=about.offset)
            view.find_gradient = partial(self._forget_gradient, view)
            view.dtype = field.dtype
            self._replaced[id(field)] = (field, view)

    def _forget_gradient(self, view: ArrayView) -> ArrayView:
        """Return a zero array for the gradient of a replaced field. Values stored to it are discarded."""
        element = view.data.shape[len(view.shape) :]
        return FieldView("a gradient", np.zeros_like(view.data), element, self.operations, first=view.first)

    def write_fields(self) -> None:
        """Copy the contents of fields that the launch changed back to the engine, and drop the views."""
        for field, view in self._fields.values():
            if isinstance(view, ArrayView) and view.is_changed:
                field.from_numpy(view.data)
        self._fields.clear()

    def forget_fields(self) -> None:
        """Drop the views of fields without writing them back."""
        self._fields.clear()

    def place(self, owner: Any, index: Any) -> Any:
        """Return an element for an assignment to one of its entries or members, as in `x[i][0] = 1.0`."""
        if isinstance(owner, ArrayView | StructField):
            return owner.element_at(index)
        return owner[index] if isinstance(owner, Matrix) else self.capture(owner[index])

    def sample(self, owner: Any, index: Any) -> Any:
        """Return some value that has the type of an element. The index may be out of range."""
        if isinstance(owner, ArrayView):
            return owner.sample
        if isinstance(owner, Matrix) and not isinstance(index, tuple | slice):
            return owner.entries[0]
        return owner[index]

    def sample_of(self, compute: Callable[[], Any]) -> Any:
        """Return a value that has an expression's type, by evaluating the expression; UNSET if that raises."""
        try:
            return compute()
        except Exception:  # noqa: BLE001  # an error shows when the expression itself is evaluated
            return UNSET

    def truth(self, value: Any) -> Any:
        """Return True if a number is not zero. Raise TypeError for a vector or matrix."""
        if isinstance(value, Matrix):
            raise TypeError("a condition must be a number, not a vector or matrix; use `any()` or `all()`")
        return np.bool_(value) if type(value) in KINDS else bool(value)

    def compare(self, names: tuple[str, ...], *values: Any) -> Any:
        """Evaluate a chain of comparisons, such as `a < b <= c`."""
        result: Any = True
        for name, left, right in zip(names, values, values[1:], strict=False):
            holds = getattr(self, name)(left, right)
            result = holds if result is True else self.bit_and(result, holds)
        return result

    def first(self, value: Any, _then: Any) -> Any:
        """Return the first of two values. Both were computed by the caller."""
        return value

    def in_common_type(self, value: Any, other: Any) -> Any:
        """Convert `value` to the common type of both arguments; return it unchanged if `other` is UNSET."""
        is_plain = other is UNSET or isinstance(value, Struct | str) or value is None
        return value if is_plain else self.operations.to_common_type(value, other)

    def convert(self, value: Any, annotation: Any) -> Any:
        """Convert a value to the type that an annotation names; return it unchanged if that is not a number type."""
        kind = self.dtype_name(annotation)
        if kind is not None and not isinstance(value, ArrayView | Struct | tuple | list):
            return self.operations.cast(value, kind)
        if isinstance(annotation, list | tuple) and isinstance(value, list | tuple):
            return tuple(self.convert(one, kind) for one, kind in zip(value, annotation, strict=True))
        return value

    def dtype_name(self, value: Any) -> str | None:
        """Return the name of a dtype, the engine's or Python's; None for anything else."""
        if value in (float, int, bool) and isinstance(value, type):
            return {float: self.defaults.fp, int: self.defaults.ip, bool: "u1"}[value]
        return None if value is None or isinstance(value, str) else self.language.scalar_type(value)

    # Loops ---------------------------------------------------------------------------------------

    def range(self, *bounds: Any) -> Iterable[Any]:
        """Return an iterator over a range of i32 numbers: `range` in a kernel."""
        return map(np.int32, builtins.range(*(int(bound) for bound in bounds)))

    def iterate(self, value: Any) -> Iterable[Any]:
        """Return what a kernel's `for` iterates over: an array's or field's indices, an `ndrange`'s, or a list's
        items.
        """
        if isinstance(value, builtins.range):
            return map(np.int32, value)
        if isinstance(value, Ranges):
            return value.run()
        value = self.capture(value)
        if isinstance(value, StructField):
            value = next(iter(value.views.values()))
        if isinstance(value, ArrayView):
            one = len(value.shape) == 1
            return (np.int32(at[0]) if one else tuple(map(np.int32, at)) for at in value.indices())
        return value

    # Calls ---------------------------------------------------------------------------------------

    def call(self, function: Any, /, *positional: Any, **named: Any) -> Any:
        """Call a function of the engine or of Python, or a `ti.func`."""
        if type(function) is BoundFunction:
            return self.call(function.function, function.owner, *positional, **named)
        try:
            known = self._known.get(function)
            if known is None:
                known = self._find(function)
                # Quadrants makes a new object each time that a bound function is accessed.
                if not self.engine.is_bound(function):
                    self._known[function] = known
        except TypeError:
            if type(function).__hash__ is not None:
                raise
            known = self._find(function)
        return known(*positional, **named)

    def _find(self, function: Any) -> Callable[..., Any]:
        """Return the Python function that implements a function called by the kernel."""
        if function in _NATIVE:
            return function
        if function in BUILTINS:
            return BUILTINS[function](self)
        kind = self.language.scalar_type(function)
        if kind is not None:
            # In `ti.f64(0.1)` the Python number is not rounded to the default type.
            plain = self.operations.arithmetic.plain_casts[kind]
            return lambda value: plain(value) if type(value) is float else self.operations.cast(value, kind)
        name = self.language.name_of(function)
        if name in _MATRICES:
            return self._constructors.build_matrix
        if name == "lang.struct.Struct":
            return self._constructors.build_struct
        matrix = self._constructors.matrix_type(function)
        if matrix is not None:
            return lambda *values: self.operations.typed_matrix(*matrix, values)
        struct = self.language.struct_type(function)
        if struct is not None:
            return lambda *values, **named: self._constructors.build_typed_struct(struct, values, named)
        return self._find_by_name(function, name)

    def _find_by_name(self, function: Any, name: str) -> Callable[..., Any]:
        room, _, last = name.rpartition(".")
        if name in SPECIAL:
            return SPECIAL[name](self)
        if room in TABLE and last in TABLE[room]:
            return TABLE[room][last](self)
        if room == "lang.matrix.Matrix":
            method = self.language.matrix_operation(last)
            if method is None or last in ("cols", "rows", "diag", "identity", "one", "unit", "zero"):
                return fill_matrix(self, last)
            return lambda *values, **named: self.call(method, *values, **named)
        written = self.language.function_of(function)
        if written is not None:
            owner = self.language.owner_of(function)
            compiled = self.translate_function(function, written)
            if getattr(compiled, "references", ()):
                inner = compiled
                compiled = lambda *values, **named: inner(*values, **named)[0]  # noqa: E731
            return compiled if owner is None else lambda *values, **named: compiled(owner, *values, **named)
        if name.startswith("_funcs."):
            return self.translate(function)
        if name:
            words = f"the Python engine has no `{name}` of {self.engine.name}"
            remedy = f"Run the kernel on {self.engine.name}, or remove this call."
            raise KernelError(refusal(words, remedy=remedy))
        return function

    def translate_function(self, function: Any, written: Callable[..., Any]) -> Callable[..., Any]:
        """Return the Python function rewritten from `written`, the source function of a `ti.func`. Bind its object."""
        owner = self.language.owner_of(function)
        return self.translate(written, is_method=self.language.is_method(function), owner=owner)

    def rewrite_early(self, function: Any, written: Callable[..., Any]) -> None:
        """Rewrite a `ti.func` when its caller is rewritten, so that it has the Python numbers of that time.

        Do nothing if it is being rewritten already: it calls itself.
        """
        if written not in self._being_written:
            self._being_written.add(written)
            try:
                self.translate_function(function, written)
            finally:
                self._being_written.discard(written)

    def translate(
        self, function: Callable[..., Any], *, is_method: bool = False, owner: object | None = None
    ) -> Callable[..., Any]:
        """Return the rewritten Python function of a `ti.func`. Rewrite it on first use.

        Args:
            function: the Python function under the decorator.
            is_method: whether its first parameter is its object.
            owner: that object, if it has one. Its numbers are baked into the result.
        """
        if self._base is not self and self.engine.owns(function):
            # The engine's own functions do not depend on the user's numbers, so all kernels share them.
            return self._base.translate(function, is_method=is_method, owner=owner)
        key = (function, id(owner))
        known = self._written.get(key)
        if known is None:
            # Stored with its owner: while the owner exists, no other object gets its `id`.
            known = self._written[key] = (self._translate(function, self, is_method, owner), owner)
        return known[0]

    def is_template(self, annotation: Any) -> bool:
        """Return True if a parameter with this annotation is passed by reference."""
        return self.language.is_template(annotation) or self.language.is_array(annotation)

    def find_source_function(self, function: Any) -> Callable[..., Any] | None:
        """Return the Python function of a `ti.func`; None for anything else."""
        return self.language.function_of(function)

    def copy_argument(self, value: Any) -> Any:
        """Return the value of a parameter without a dtype inside a function: a copy, unless it is an
        array or a field.
        """
        return value if type(value) in (bool, int, float) else self.let(value)

    def convert_argument(self, value: Any, kind: str) -> Any:
        """Return the value of a parameter with a dtype inside a function: converted to the type `kind`."""
        if isinstance(value, ArrayView | Struct) or self.engine.is_field(value):
            return self.let(value)
        return self.operations.cast(value, kind)

    def call_with_references(self, function: Any, /, *positional: Any, **named: Any) -> tuple[Any, dict[Any, Any]]:
        """Call a function that may change numbers of its caller by reference.

        Returns:
            Its result, and the new values of changed arguments by position or name.
        """
        if type(function) is BoundFunction:
            result, changed = self.call_with_references(function.function, function.owner, *positional, **named)
            return result, {key - 1 if isinstance(key, int) else key: one for key, one in changed.items() if key != 0}
        written = self.language.function_of(function)
        names = () if written is None else getattr(self.translate_function(function, written), "references", ())
        if written is None or not names:
            return self.call(function, *positional, **named), {}
        owner = self.language.owner_of(function)
        first = [] if owner is None else [owner]
        result, *finals = self.translate_function(function, written)(*first, *positional, **named)
        parameters = written.__code__.co_varnames[len(first) : written.__code__.co_argcount]
        changed: dict[Any, Any] = {}
        for name, final in zip(names, finals, strict=True):
            key = name if name in named else parameters.index(name)
            if final is not (named[name] if name in named else positional[key]):
                changed[key] = final
        return result, changed

    def find_new_value(self, called: tuple[Any, dict[Any, Any]], key: Any, old: Any = UNSET) -> Any:
        """Return an argument's new value after `call_with_references`, or `old` if it was not changed."""
        return called[1].get(key, old)
