"""Content: what a kernel's IR follows from, as text that another process can compare with its own.

It has the trees of the kernel and of the functions that it calls, the Python values that they read, and the properties
of its fields. A fingerprint compares objects by identity; here only values are described that are all that counts of
them, and a kernel that uses others has no content: those in which Python code of the user's runs while they are
compiled, for one, as it may read a file.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..._errors import TinsmithError
from ...engines import Engine, FieldKey, Language, gradient_field, read_annotations
from .._fingerprints import MISSING, PLAIN, is_tensor
from .._read import Source
from ._constants import Constants
from ._paths import chains, take_step

_DEEPEST = 5
"""How many containers and types are looked into."""
_NUMBERS_OF_NUMPY = frozenset(["pi", "e", "inf", "nan", "array", "zeros", "ones", "eye", "arange", "linspace", "prod"])
"""Names of NumPy, besides its types and elementwise functions, whose values depend on nothing but arguments."""


class Content(NamedTuple):
    """What a kernel's IR follows from.

    Attributes:
        text: equal texts lower to equal IR.
        fields: the fields that the kernel may use, by their keys. The text has their properties, in this order.
    """

    text: str
    fields: Mapping[FieldKey, Any]


class _Unknown(Exception):  # it never leaves this file
    """A value has no text that is all that counts of it."""


def describe_content(constants: Constants, templates: Mapping[str, Any]) -> Content | None:
    """Return what a kernel's IR follows from, besides its parameters and options; None if that has no text.

    `templates` are the template arguments by name, as for `constants_of`.
    """
    if not constants.is_complete:
        return None
    describer = _Describer(constants)
    try:
        return Content("\n".join(describer.list_lines(templates)), describer.fields)
    except (_Unknown, TinsmithError):
        return None


class _Describer:
    """Describes the values of one kernel."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._engine: Engine = constants.engine
        self._language = Language(constants.engine)
        self._functions = [source.function for source in constants.sources]
        self.fields: dict[FieldKey, Any] = {}

    def list_lines(self, templates: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of the text. Raise _Unknown if there is none."""
        places = {id(source): place for place, source in enumerate(self._constants.sources)}
        for source in self._constants.sources:
            yield f"{source.path} {source.source_names} {source.text_with_lines}"
            yield self._describe_declaration(source.function)
            yield from self._list_modules(source)
        for path in self._constants.paths:
            place = None if path.source is None else places.get(id(path.source))
            if path.source is not None and place is None:
                raise _Unknown
            value = path.value(templates)
            is_asked_for = path in self._constants.by_type
            yield f"{place} {path} = {self._describe_object(value) if is_asked_for else self._describe(value)}"

    def _list_modules(self, source: Source) -> Iterator[str]:
        """Yield the names of a body that stand for modules, whose parts are no baked values (`_STEADY_MODULES`)."""
        for name in sorted(source.names_read):
            module = source.value(ast.Name(name, ast.Load()))
            if isinstance(module, ModuleType):
                yield f"{name} is {module.__name__} {getattr(module, '__version__', '')}"
                self._check_numpy(source, name, module)

    def _check_numpy(self, source: Source, name: str, module: ModuleType) -> None:
        """Raise _Unknown if a body uses a part of NumPy that depends on more than its arguments: a file, for one."""
        for chain in chains(source.tree) if module.__name__ == "numpy" else ():
            if chain[0] == name:
                part = take_step(module, chain[1]) if len(chain) > 1 else module
                is_type = isinstance(part, type) and issubclass(part, np.generic)
                if not (is_type or isinstance(part, np.ufunc) or (len(chain) > 1 and chain[1] in _NUMBERS_OF_NUMPY)):
                    raise _Unknown

    def _describe_declaration(self, function: Any) -> str:
        """Describe the annotations and defaults of a function: calls convert arguments by them."""
        annotations = {name: self._describe_annotation(one) for name, one in read_annotations(function).items()}
        defaults = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
        return f"{annotations} {self._describe(defaults)}"

    def _describe_annotation(self, value: Any) -> str:
        kind = f"{type(value).__qualname__} {getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        if isinstance(value, str):
            return repr(value)
        if self._language.is_template(value) or self._language.is_array(value):
            return f"memory {kind}"
        if self._engine.owns(value) and not isinstance(value, type):
            return self._describe(value)
        return kind

    def _describe(self, value: Any, depth: int = 0) -> str:
        """Describe a value. Raise _Unknown if it has no text."""
        kind = type(value)
        if value is MISSING:
            return "missing"
        if kind in PLAIN or kind is float:
            return f"{kind.__name__} {value!r}"
        if depth > _DEEPEST or is_tensor(value):
            raise _Unknown
        if isinstance(value, enum.Enum):
            return f"{self._name(kind)}.{value.name} {self._describe(value.value, depth + 1)}"
        if _is_of_numbers(value):
            return f"{kind.__name__} {value.dtype.str} {value.shape} {value.tobytes().hex()}"
        if kind in (list, tuple):
            return f"{kind.__name__}({', '.join([self._describe(one, depth + 1) for one in value])})"
        if kind is dict:
            pairs = value.items()
            texts = [f"{self._describe(key, depth + 1)}: {self._describe(one, depth + 1)}" for key, one in pairs]
            return f"{{{', '.join(texts)}}}"
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return f"{self._name(kind)} {kind._fields} {self._describe(tuple(value), depth)}"
        return self._describe_part_of_language(value, depth)

    def _describe_part_of_language(self, value: Any, depth: int) -> str:
        engine, language = self._engine, self._language
        if engine.is_field(value):
            return self._describe_field(value)
        if engine.matrix_entries(value) is not None:
            return f"{self._name(type(value))} {language.rows_of(value)!r}"
        function = engine.inner_function(value)
        if function is not None and function in self._functions:
            # Its tree is in the text, and the values that its object has are others.
            facts = [engine.is_bound(value), language.is_method(value), language.is_real(value)]
            return f"function {self._functions.index(function)} {facts}"
        if isinstance(value, ModuleType) and (engine.owns(value) or value.__name__ in ("math", "numpy")):
            return f"module {value.__name__}"
        if isinstance(value, type) and value.__module__ in ("builtins", "numpy"):
            return f"type {self._name(value)}"
        if isinstance(value, BuiltinFunctionType) and value.__module__ == "math":
            return f"function math.{value.__name__}"
        if engine.owns(value):
            return self._describe_own(value, depth)
        raise _Unknown

    def _describe_own(self, value: Any, depth: int) -> str:
        """Describe a type or a function of the engine's own."""
        language = self._language
        scalar, matrix, struct = (
            language.scalar_type(value),
            language.matrix_type(value),
            language.struct_type(value),
        )
        if scalar is not None:
            return f"dtype {scalar}"
        if matrix is not None:
            return f"type {matrix} {language.default_of(value)}"
        if struct is not None and not struct.methods:
            return f"struct {self._describe(dict(struct.members), depth + 1)}"
        if isinstance(value, FunctionType | type | ModuleType):
            return f"engine's {value.__module__}.{value.__qualname__}"
        raise _Unknown

    def _describe_field(self, value: Any) -> str:
        """Describe a field. Two names of one field have equal texts."""
        struct = self._language.struct_of(value)
        if struct is not None and struct.methods:
            raise _Unknown
        texts = []
        for name, leaf in self._engine.leaf_fields(value, "field"):
            facts = self._engine.field_facts(leaf, name)
            self.fields.setdefault(facts.key, leaf)
            if facts.has_gradient:
                # A kernel that clears a gradient names it by its field: `x.grad.fill(0.0)`.
                gradient = gradient_field(leaf)
                self.fields.setdefault(self._engine.field_facts(gradient, f"{name}.grad").key, gradient)
            place = list(self.fields).index(facts.key)
            own = {name: one for name, one in vars(facts).items() if name not in ("key", "address")}
            texts.append(f"{name}: {place} {own}, at an address: {bool(facts.address)}")
        return f"{self._name(type(value))} {texts}"

    def _describe_object(self, value: Any) -> str:
        """Describe a value of which only the type counts."""
        if isinstance(value, FunctionType) or hasattr(value, "__func__"):
            # It runs while the kernel is compiled.
            raise _Unknown
        return " ".join(map(self._name, type(value).__mro__))

    def _name(self, kind: type) -> str:
        return f"{kind.__module__}.{kind.__qualname__}"


def _is_of_numbers(value: Any) -> bool:
    """Return True for a number of NumPy and for an array of numbers."""
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc"
