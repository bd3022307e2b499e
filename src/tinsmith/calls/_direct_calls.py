"""Direct calls: code made for one op that takes the arguments of a call straight to its program.

Most calls are like an earlier one, and need none of the checks that the first one had. The code is a Python function
with the op's own parameters, so Python itself gives arguments their names. It returns None for every call that is
unlike an earlier one; that call is bound and checked by itself, which raises every error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .._cache import Cache
from ..engines import Parameter
from ..spec import Numbers
from ._binding import BoundArguments, find_integer_limits, takes_integers

if TYPE_CHECKING:
    from ._core import Core
    from ._program import Program

DirectCall = tuple["Program", tuple[torch.Tensor, ...], Numbers, BoundArguments]
"""A call whose program is known: the program, its tensors, the numbers of its sizes, and its other arguments."""

_TENSOR = "{0}.ndim, {0}.dtype, {0}.device, {0}.requires_grad, {0}.layout, {0}.is_contiguous(), {0}.is_neg(), type({0})"
"""Python code of the properties of a tensor that a program depends on."""
_EXACT = 2**53
"""Every integer up to this size is a number of float64."""


class DirectCalls:
    """Finds the programs of an op's calls that are like earlier ones.

    Args:
        core: of the op.
        programs: the programs of its calls by what they depend on (`compute_key`).

    Attributes:
        find: a function of the op's arguments that returns a `DirectCall`; None for a call that is unlike the kept
            ones. It raises TypeError if the arguments have other names or another number.
    """

    def __init__(self, core: Core, programs: Cache[Any, Program | None]) -> None:
        signature = core.signature
        self._arrays = signature.arrays
        self._names = (*signature.order, *signature.size_names)
        self.find, self._key = self._write(core, programs)

    def compute_key(self, bound: BoundArguments) -> tuple[Any, ...] | None:
        """Return the key of a call's program, all that it depends on; None if a tensor is not strided.

        The checked call then raises an error.
        """
        values = {**dict(zip(self._arrays, bound.tensors, strict=True)), **bound.scalars, **bound.templates}
        try:
            return self._key(*[values[name] if name in values else bound.sizes.get(name) for name in self._names])
        except (AttributeError, RuntimeError):
            return None

    def _write(
        self, core: Core, programs: Cache[Any, Program | None]
    ) -> tuple[Callable[..., DirectCall | None], Callable[..., tuple[Any, ...]]]:
        """Generate `find`, and the function that computes the key of a program from all arguments in order."""
        signature, names = core.signature, self._names
        # An op's parameters may have any names, so the code has its own.
        own = {name: f"p{place}" for place, name in enumerate(names)}
        parameters, tensors = ", ".join(own.values()), [own[name] for name in signature.arrays]
        shapes = _write_tuple([f"{tensor}.shape" for tensor in tensors])
        values = _write_dict(own, (*signature.size_scalars, *signature.size_names))
        templates = _write_dict(own, signature.templates)

        entries = [f"runtime{place}()" for place in range(len(core.runtimes))]
        entries += [_TENSOR.format(tensor) for tensor in tensors]
        entries += [own[name] for name in signature.launch_numbers]
        # A call without a dim that another one passes has another program.
        entries += [f"{own[name]} is None" for name in signature.size_names]
        if signature.has_open_elements:
            entries += [shapes, f"*{values}.values()"]
        if core.captures.varies:
            entries.append(f"fingerprints({templates})")
        checks = [line for name in signature.scalars for line in _write_check(own[name], signature.parameters(name)[0])]
        checks += [f"if isinstance({own[name]}, Tensor): return None" for name in signature.templates]
        checks += [f"if type({own[name]}) is not int: return None" for name in signature.size_names]
        others = "nothing"
        if len(names) > len(tensors):
            scalars, sizes = _write_dict(own, signature.scalars), _write_dict(own, signature.size_names)
            others = f"BoundArguments((), {scalars}, {templates}, {sizes})"

        # Longer than any of the names.
        inner = "_" + max((*names, ""), key=len)
        keywords = ("*", *signature.size_names) if signature.size_names else ()
        lines = [
            f"def with_names({inner}):",
            f"    return lambda {', '.join((*signature.order, *keywords))}: {inner}({', '.join(names)})",
            f"def key({parameters}):",
            f"    return {_write_tuple(entries)}",
            f"def find({parameters}):",
            *(f"    {line}" for line in checks),
            "    try:",
            f"        program = get({_write_tuple(entries)})",
            # Of a value that is not a strided tensor.
            "    except (AttributeError, RuntimeError):",
            "        return None",
            "    if program is None or not program.is_direct: return None",
            f"    numbers = program.solve({shapes}, {values})",
            f"    return None if numbers is None else (program, {_write_tuple(tensors)}, numbers, {others})",
        ]
        known: dict[str, Any] = {f"runtime{place}": runtime for place, runtime in enumerate(core.runtimes)}
        known |= {"get": programs.get, "fingerprints": core.captures.fingerprints}
        known |= {"nothing": BoundArguments((), {}, {}, {}), "BoundArguments": BoundArguments, "Tensor": torch.Tensor}
        exec(compile("\n".join(lines), f"<calls of {signature.op}>", "exec"), known)
        # Taken out of their own globals, or the cycle would keep them alive until the garbage collector runs.
        with_names, find = known.pop("with_names"), known.pop("find")
        return with_names(find), known.pop("key")


def _write_check(name: str, parameter: Parameter) -> list[str]:
    """Write the lines that convert a scalar argument as `check_scalar` does, and leave what is unusual to it."""
    if takes_integers(parameter):
        # Whether an integer beyond 32 bits fits may depend on how the engine was started.
        low, high = find_integer_limits(parameter, lambda: torch.int32)
        unusual = f"type({{0}}) is not int or not {low} <= {{0}} <= {high}"
    else:
        unusual = "type({0}) is not float and type({0}) is not int"
    if parameter.kind == "matrix":
        return [
            f"if type({name}) is list: {name} = tuple({name})",
            f"if type({name}) is not tuple or len({name}) != {parameter.entries}: return None",
            f"for entry in {name}:",
            f"    if {unusual.format('entry')}: return None",
        ]
    if takes_integers(parameter):
        return [f"if {unusual.format(name)}: return None"]
    return [
        f"if type({name}) is not float:",
        f"    if type({name}) is not int or not -{_EXACT} <= {name} <= {_EXACT}: return None",
        f"    {name} = float({name})",
    ]


def _write_tuple(texts: Sequence[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts)})"


def _write_dict(own: Mapping[str, str], names: Sequence[str]) -> str:
    """Write a dict from parameters' names to their values, which the code calls by its `own` names."""
    return f"{{{', '.join(f'{name!r}: {own[name]}' for name in names)}}}"
