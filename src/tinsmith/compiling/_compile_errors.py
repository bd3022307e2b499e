"""Compile errors and warnings of an engine, translated to lines of the user's file.

The engine compiles source that was printed from the kernel's tree, one statement a line, and names lines of that
source. The tree has the original positions.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from .._errors import sentence
from ..codegen import map_lines
from ..engines import Engine, name_place
from ..frontend import Source, find_array_slice, find_mismatched_loop

_FRAME = re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d+), in (?P<function>\w+):\n(?P<code>.*)$', re.MULTILINE)
"""An engine's own frames end with a colon; those of Python's tracebacks, which it also prints, do not."""
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_ARRAY_AS_NUMBER = "any_array.AnyArray"
_ENGINE_FUNCTION = (
    "In the kernel, write the engine's function, `{lang}.exp` for `torch.exp`: a kernel has numbers, not tensors."
)
_OUTSIDE_NUMBERS = (
    "Pass the numbers in a tensor: make it a parameter of the kernel and list it in the spec. Only constants index a "
    "Python list or a NumPy array, as the variable of `for i in {lang}.static(range(3))`."
)
_COUNT_UP = "Loop over `range(n)`, which counts up by one, and compute the index: `i = n - 1 - k` counts down."
_REMEDIES = {
    _ARRAY_AS_NUMBER: "Annotate the function's parameter for the array as a template: `a: template()`.",
    "must be Tensor, not": _ENGINE_FUNCTION,
    # Quadrants 1.3.3 loses its own report of a Python function that fails.
    "name 'args' is not defined": (
        "In the kernel, write the engine's functions, `{lang}.exp` for `np.exp`, and loops over `range(n)`: Python's "
        "own functions cannot compute with the numbers of a kernel."
    ),
    "list indices must be integers": _OUTSIDE_NUMBERS,
    "tuple indices must be integers": _OUTSIDE_NUMBERS,
    "numpy.newaxis (`None`) and integer": _OUTSIDE_NUMBERS,
    "indices must be integers": (
        "Convert the index to an integer: `int(...)` rounds toward zero, `{lang}.floor(..., {lang}.i32)` rounds down."
    ),
    "Negative indices are not supported": "Write the last element as `x[x.shape[0] - 1]`.",
    "Range should have 1 or 2 arguments": _COUNT_UP,
    "cannot be interpreted as an integer": _COUNT_UP,
    "accessed with indices of dim": (
        "Write one index for each dim in the spec, `x[i, j]` in place of `x[i][j]`, and `y[None]` for an array `y[]`."
    ),
    "data type: <class 'torch.Tensor'>": (
        "Write a few numbers as a vector, `{lang}.Vector([0.0, 0.0])`, and make a larger array a parameter of the "
        "kernel that `scratch=` of the op lists: a kernel has numbers, not tensors."
    ),
    "Return inside non-static": (
        "Write `continue` to go on with the next iteration, or an `if` around what `return` skips."
    ),
    "must be annotated with a return type": (
        "Leave the `return` out if it returns an array: the op returns its outputs. A number that a kernel returns "
        "needs its type, `-> {lang}.f32`."
    ),
    "is not defined": (
        "Define the name before the kernel. A variable that is first assigned in a branch or a loop ends there: give "
        "it a value before it."
    ),
}
"""What to write instead, by a part of the engine's message. `{lang}` is the engine's module in the user's file."""
WHERE_THE_REPORT_IS = "The engine's full report is this error's cause (`__cause__`)."
"""The last sentence of remedies for compile errors."""


def describe_frames(cause: Exception, source: Source, text: str) -> list[tuple[str, str]]:
    """Return rows for an error message: the line of the kernel at which the engine stopped, then the lines of the
    functions that it called.

    Args:
        cause: the engine's exception.
        source: the kernel, as `text` was printed from it.
        text: the source that the engine got.
    """
    frames = [match.groupdict() for match in _FRAME.finditer(strip_colors(cause))]
    # An engine may report a frame twice.
    last = {(one["path"], one["line"]): place for place, one in enumerate(frames)}
    kept = [one for place, one in enumerate(frames) if last[one["path"], one["line"]] == place]
    lines = map_lines(source.tree, text)
    rows = []
    for one in kept:
        path, line, code = one["path"], int(one["line"]), one["code"]
        where = name_place(path, line)
        if path.startswith("<tinsmith") and one["function"] == source.name and line in lines:
            where = name_place(source.path, lines[line])
            # The engine shows the line that it was given, which may be another than the user's.
            code = linecache.getline(source.path, lines[line]) or code
        elif path.startswith("<tinsmith"):
            where = f"in {one['function']}"
        rows.append(("at", f"{where}: {code.strip()}"))
    return rows


@contextlib.contextmanager
def place_warnings(source: Source, text: str, path: str, given: set[tuple[str, str, int]]) -> Iterator[None]:
    """Catch an engine's warnings about generated text, and issue each once, at the line of the user's kernel.

    Args:
        source: the kernel, as `text` was printed from it.
        text: the source that the engine got.
        path: the file name that the engine uses for `text`.
        given: the kernel's warnings so far, which are not repeated for its other variants. Updated.
    """
    with warnings.catch_warnings(record=True) as caught:
        # The user's filters are applied below, for the user's file.
        warnings.simplefilter("always")
        yield
    lines = map_lines(source.tree, text) if any(one.filename == path for one in caught) else {}
    for one in caught:
        where, words = (one.filename, one.lineno), strip_colors(one.message)
        if one.filename == path:
            where = source.path, lines.get(one.lineno, source.tree.lineno)
        if (words, *where) not in given:
            given.add((words, *where))
            warnings.warn_explicit(words, one.category, *where)


def strip_colors(message: object) -> str:
    """Return an engine's message without the codes that color it in a terminal."""
    return _COLORS.sub("", str(message))


def find_error_line(cause: Exception) -> str:
    """Return the line of an engine's report that names the error: its compiler's line, or else the last line that is
    not empty.
    """
    words = [line.strip() for line in strip_colors(cause).splitlines()]
    words = [line for line in words if len(line) > 2 and not line.startswith(("http", "Please"))]
    compiled = [line for line in words if line.startswith("[") and ".cpp:" in line]
    return (compiled or words or [repr(cause)])[-1]


def find_known_remedies(cause: Exception, lang: str) -> list[str]:
    """Return the remedy that follows from the engine's message alone, if there is one.

    Args:
        cause: what the engine raised.
        lang: what the user's file calls the engine's module, `ti` or `qd`.
    """
    words = str(cause)
    return [remedy.replace("{lang}", lang) for fragment, remedy in _REMEDIES.items() if fragment in words][:1]


class Misfit(NamedTuple):
    """A mistake that a kernel's source shows: a row of a message, and its remedy."""

    row: tuple[str, str]
    remedy: str


def describe_mismatched_loop(source: Source, ranks: Mapping[str, int]) -> Misfit | None:
    """Describe the first loop over an array that has more or fewer indices than the array has dims; None if there is
    none.

    Engines report an undefined name for it, or nothing at all. `ranks` maps the call's arrays to their numbers of dims.
    """
    loop = find_mismatched_loop(source, ranks)
    if loop is None:
        return None
    rank, count = loop.rank, loop.index_count
    remedy = f"Write one loop variable for each dim, or give `{loop.array}` {_count(count, 'dim', 'dims')} in the spec"
    remedy += ", after `*b` for a batch." if rank > count else "."
    if rank > count:
        vectors = f"ndarray(dtype=types.vector(k, f32), ndim={count})"
        remedy += f" If its elements are vectors, annotate them: `{loop.array}: {vectors}`."
    facts = f"{_count(rank, 'dim', 'dims')}, and `{loop.text}` names {_count(count, 'index', 'indices')}"
    return Misfit((f"`{loop.array}`", f"{facts}, at {loop.place}"), remedy)


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def find_sliced_array(
    cause: Exception, sources: Sequence[Source], kernel: Source, arrays: Collection[str]
) -> Misfit | None:
    """Describe the first slice of an array, `x[i:]`, which engines lack; None if there is none. Slices of vectors are
    allowed.

    Args:
        cause: the engine's exception. It tells whether a function's template argument was an array or a vector.
        sources: the kernel, and the functions that it calls.
        kernel: the kernel.
        arrays: the kernel's parameters that are arrays.
    """
    for source in sources:
        is_kernel = source.identity is kernel.identity
        if not is_kernel and _ARRAY_AS_NUMBER not in str(cause):
            continue
        names = arrays if is_kernel else [name for name in source.parameters if source.is_template(name)]
        sliced = find_array_slice(source, names)
        if sliced is not None:
            row = (f"`{sliced.text}`", f"a slice of an array, at {sliced.place}")
            return Misfit(row, "Loop over the elements, `for j in range(...)`: kernels have no slices of arrays.")
    return None


def describe_outside_tensor(names: Sequence[str], *, is_op: bool) -> Misfit | None:
    """Describe a tensor that a kernel uses and does not get as an argument: the first of `names`. None if there are no
    names. Only the arguments of ops (`is_op`) are listed in a spec.
    """
    if not names:
        return None
    row = (f"`{names[0]}`", "a tensor from outside the kernel, which kernels cannot read")
    remedy = "make it a parameter of the kernel and list it in the spec."
    if not is_op:
        remedy = "make it a parameter of the kernel, or a member of a dataclass that it takes or its object has."
    return Misfit(row, f"Pass `{names[0]}` as an argument: {remedy}")


def describe_reverse_remedy(engine: Engine, *, is_op: bool) -> str:
    """Return the remedy for a kernel that an engine's reverse mode cannot compile. Only ops (`is_op`) can take a
    hand-written gradient.
    """
    option = engine.reverse_option()
    ways = [f"start the engine with `ts.init(..., {option})`"] if option else []
    ways.append("rewrite the construct that it names")
    if is_op:
        ways.append("give the op its gradient kernel by hand: `backward=`, or `@op.backward`")
    return sentence(", or ".join(ways))
