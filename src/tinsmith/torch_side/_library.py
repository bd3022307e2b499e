"""The operators of the library's own ops: two that all of them share.

An exported program contains the names of the operators that it calls. The operators of a user's op exist once the
module that makes the op is imported. But the library makes its own ops at the first call with a configuration, so they
would not exist in another process that loads the program. Therefore these ops share `tinsmith::library_2`, which exists
from the start. Its first argument, the *recipe*, says how to find or make the op. `torch.utils.flop_counter` also needs
this: it only knows operators that exist when counting begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import register_flop_formula

from .._errors import GraphError, refusal
from ..calls import BackwardCall, Call, Core
from ..engines import list_installed
from ._definition import define_operator
from ._operator import Operator
from ._schema import SHARED_BACKWARD, SHARED_FORWARD, Inputs, Schema

# Torch caches compiled graphs by the names of their operators, so a changed declaration needs a new name.
_NAME = "library_2"


class Recipe(NamedTuple):
    """A description of one of the library's own ops, from which any process can make it.

    Attributes:
        family: a name that was registered with `register_family`.
        engine: the name of the engine of the op's kernels.
        details: strings, numbers and booleans that determine the op, together with device and dtype.
    """

    family: str
    engine: str
    details: tuple[Any, ...]

    def write(self) -> str:
        """Return the recipe as the text that graphs contain."""
        # JSON cannot encode NumPy's numbers.
        return json.dumps([self.family, self.engine, *self.details], default=lambda number: number.item())

    @classmethod
    def read(cls, text: str) -> Recipe:
        """Parse the text that `write` returned. An engine that is not installed is replaced by one that is.

        Raises:
            GraphError: the text is not a recipe.
        """
        try:
            family, engine, *details = json.loads(text)
        except (ValueError, TypeError, RecursionError) as cause:
            words = "a graph calls an op of tinsmith by a recipe that cannot be read"
            raise GraphError(refusal(words, [("recipe", f"{text:.80}")], "Export the graph again.")) from cause
        installed = list_installed()
        return cls(family, engine if engine in installed else installed[0], tuple(details))


class Family(NamedTuple):
    """Ops of one kind.

    Attributes:
        find: returns the op for (engine, device, dtype, *details), and makes it at the first call; `dtype` is that of
            the op's first input.
        formula: returns the number of operations for (call, active, *details); `active` is None for the forward pass.
            If `formula` is None, operations are counted in the source of the kernels.
    """

    find: Callable[..., Any]
    formula: Callable[..., int] | None = None


_FAMILIES: dict[str, Family] = {}


def register_family(name: str, family: Family) -> None:
    """Register a family of ops under a name: an op's recipe names its family, so that the op can be made again."""
    _FAMILIES[name] = family


class LibraryOperator(Operator):
    """The operators of one of the library's own ops: the two shared ones, called with the op's recipe.

    Args:
        recipe: the op's recipe.
        core: the op's core. The op takes arrays and sizes only, and its kernels depend on no Python values or fields.
    """

    def __init__(self, recipe: Recipe, core: Core) -> None:
        self.recipe = recipe
        self._text = recipe.write()
        super().__init__(_NAME, core)
        self.add(core)

    def _make_schema(self, core: Core) -> Schema:
        assert not (core.has_state or core.signature.scalars or core.signature.templates), core.signature.op
        return Schema(core.signature, False, lists_all=True)

    def _define(self) -> None:
        """Define nothing: these ops share two operators that exist already."""

    def forward(self, arrays: Sequence[torch.Tensor], _numbers: Any, *rest: Any) -> Any:
        """Call the shared forward operator with this op's recipe."""
        return FORWARD(self._text, arrays, *rest)

    def backward(self, arrays: Sequence[Any], _numbers: Any, *rest: Any) -> Any:
        """Call the shared backward operator with this op's recipe."""
        return BACKWARD(self._text, arrays, *rest)

    def count(self, call: Call, active: frozenset[str] | None) -> int | None:
        """Return the number of operations of a pass by the family's formula; None if the family has none.

        `active` are the inputs that want a gradient; None for the forward pass.
        """
        formula = _FAMILIES[self.recipe.family].formula
        return None if formula is None else formula(call, active, *self.recipe.details)

    def _forward_flops(self, *arguments: Any, **keywords: Any) -> int:
        given, core, bound = self._read(arguments, keywords)
        known = self.count(self._convert(core, bound, given.batch), None)
        return super()._forward_flops(*arguments, **keywords) if known is None else known

    def _backward_flops(self, *given: Any, **keywords: Any) -> int:
        asked: BackwardCall = self._read_backward(given, keywords)
        known = self.count(asked.call, asked.active)
        return super()._backward_flops(*given, **keywords) if known is None else known


# Reading a recipe looks for the installed engines, which takes 50 us, and graphs read one at each call.
_read_recipe = lru_cache(maxsize=1024)(Recipe.read)


def _find(text: str, arrays: Sequence[Any], dtype: torch.dtype) -> Any:
    """Return the operator of the op that a recipe describes, for the device of these tensors and this dtype.

    The op is made if it does not exist yet. Raise GraphError for an unknown family.
    """
    recipe = _read_recipe(text)
    family = _FAMILIES.get(recipe.family)
    if family is None:
        words = f"a graph calls an op of the family `{recipe.family}` of tinsmith, which does not exist in this process"
        raise GraphError(refusal(words, remedy="Import `tinsmith.nn`, then load the graph."))
    device = next(one.device for one in arrays if one is not None)
    return family.find(recipe.engine, device, dtype, *recipe.details)._core.operators


def _find_backward(text: str, arrays: Sequence[Any], inputs: str) -> Any:
    return _find(text, arrays, Inputs.read(inputs).dtypes[0])


def _forward_method(name: str) -> Callable[..., Any]:
    def run(text: str, arrays: list[torch.Tensor], *rest: Any, **keywords: Any) -> Any:
        return getattr(_find(text, arrays, arrays[0].dtype), name)(arrays, [], *rest, **keywords)

    return run


def _backward_method(name: str) -> Callable[..., Any]:
    def run(text: str, arrays: list[Any], shapes: list[int], inputs: str, *rest: Any, **keywords: Any) -> Any:
        return getattr(_find_backward(text, arrays, inputs), name)(arrays, [], shapes, inputs, *rest, **keywords)

    return run


def _forward_vmap(info: Any, in_dims: Any, text: str, arrays: list[torch.Tensor], *rest: Any) -> Any:
    operator = _find(text, arrays, arrays[0].dtype)
    return operator._forward_vmap(info, (in_dims[1], []), arrays, [], *rest)


def _backward_vmap(
    info: Any, in_dims: Any, text: str, arrays: list[Any], shapes: list[int], inputs: str, *rest: Any
) -> Any:
    operator = _find_backward(text, arrays, inputs)
    return operator._backward_vmap(info, (in_dims[1], []), arrays, [], shapes, inputs, *rest)


# Which engine runs them is known only when they are called, and Taichi cannot be captured.
FORWARD = define_operator(
    _NAME,
    SHARED_FORWARD,
    _forward_method("run"),
    _forward_method("_forward_fake"),
    _forward_method("run_final"),
    _forward_vmap,
    is_capturable=False,
)
BACKWARD = define_operator(
    f"{_NAME}_backward",
    SHARED_BACKWARD,
    _backward_method("run_backward"),
    _backward_method("_backward_fake"),
    _backward_method("run_backward_final"),
    _backward_vmap,
    is_capturable=False,
)
register_flop_formula(FORWARD.overloadpacket, get_raw=True)(_forward_method("_forward_flops"))
register_flop_formula(BACKWARD.overloadpacket, get_raw=True)(_backward_method("_backward_flops"))
