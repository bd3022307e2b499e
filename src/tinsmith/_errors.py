"""The exceptions of tinsmith, and the layout of their messages.

    TinsmithError
    ├── SpecError         ValueError     a spec that does not parse, or does not match its kernel
    ├── ArgumentError     TypeError      wrong number, names or kinds of call arguments; unsupported tensors
    ├── ShapeError        ValueError     sizes that do not fit each other or the spec
    ├── DtypeError        TypeError      a dtype that the kernel or the spec does not take
    ├── DeviceError       RuntimeError   tensors on different devices, or not where the engine runs
    ├── BoundsError       IndexError     a kernel with `check_bounds=True` that leaves one of its arrays
    ├── KernelError       ValueError     a kernel that cannot be an op: it writes an input, overwrites what it read, ...
    ├── RegistrationError RuntimeError   a layer whose parts are missing, doubled, or registered too late
    ├── EngineError       RuntimeError   an engine missing, not started, or started for another device
    ├── GradientError     RuntimeError   a derivative that is not available
    ├── GraphError        RuntimeError   a compiled or exported graph of an op that is missing or edited
    ├── ConfigError       ValueError     a setting or a configuration's key unknown or out of range
    ├── InputError        ValueError     a file that a command cannot read or write
    ├── CheckError        AssertionError a kernel or gradient that a check found wrong
    └── CheckpointError   ValueError     a checkpoint broken, or made by something else

Every class is also the builtin exception that a caller would expect, so `except ValueError` keeps working for code that
does not know tinsmith. Each check decides what it raises; this file only defines the classes and the layout that all
messages share (`refusal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

DEBUGGING = "docs/how-to/debug.md"
"""The page that messages about wrong numbers refer to: how to stop in a kernel with a debugger."""

Error = TypeVar("Error", bound="TinsmithError")


class TinsmithError(Exception):
    """The base class of all errors of tinsmith.

    Attributes:
        is_internal: whether the error is a bug of tinsmith that should be reported, not a mistake of the caller.
    """

    is_internal: bool = False


class SpecError(TinsmithError, ValueError):
    """The spec does not parse, or does not match the parameters of its kernel."""


class ArgumentError(TinsmithError, TypeError):
    """A call has the wrong number, names or kinds of arguments, or an unsupported tensor."""


class ShapeError(TinsmithError, ValueError):
    """The sizes of the arguments do not fit each other or the spec."""


class DtypeError(TinsmithError, TypeError):
    """A tensor has a dtype that the kernel or the spec does not take."""


class DeviceError(TinsmithError, RuntimeError):
    """Tensors are on different devices, or not on that of the engine."""


class KernelError(TinsmithError, ValueError):
    """The kernel cannot be an op: it writes an input, overwrites what it read, has no source."""


class BoundsError(TinsmithError, IndexError):
    """A launch with `check_bounds=True` used an index outside an array, or divided an integer by zero.

    Attributes:
        path, line: the place in the kernel's source.
    """

    def __init__(self, words: str, path: str = "", line: int = 0) -> None:
        super().__init__(words)
        self.path, self.line = path, line


class RegistrationError(TinsmithError, RuntimeError):
    """Parts of a layer (Tin, EmptyTin, Tube) are missing, duplicated, unknown, or registered too late."""


class EngineError(TinsmithError, RuntimeError):
    """An engine is missing, not started, started for another device, or incompatible in this release."""


class GradientError(TinsmithError, RuntimeError):
    """A derivative is not available. The error is raised instead of returning a wrong one silently."""


class GraphError(TinsmithError, RuntimeError):
    """A compiled or exported graph calls an op that does not exist in this process, or that was edited later."""


class ConfigError(TinsmithError, ValueError):
    """A TINSMITH_* setting, or a key of a network configuration, is unknown or has an invalid value."""


class InputError(TinsmithError, ValueError):
    """An input file of a command cannot be read, or its output cannot be written."""


class CheckError(TinsmithError, AssertionError):
    """A check found errors in a kernel, or a wrong gradient."""


class CheckpointError(TinsmithError, ValueError):
    """A checkpoint is broken, or was made by something other than what is being restored."""

    reason: str = ""
    """Why a file cannot be read as a checkpoint, where that is the error: a command adds its own remedy to it."""


for _error in (TinsmithError, *TinsmithError.__subclasses__()):
    # What a traceback prints is what a caller catches: `tinsmith.ShapeError`.
    _error.__module__ = "tinsmith"


def refusal(headline: str, rows: Iterable[tuple[str, ...]] = (), remedy: str = "") -> str:
    """Format an error message: what does not fit, the facts in aligned columns, the remedy.

    Args:
        headline: what is wrong, naming the argument and the op; without a full stop.
        rows: (label, fact) or (label, fact, note); a note is set off by an arrow.
        remedy: what to write instead; the last line. Left out when empty.

    Example:
        >>> print(refusal("`b` does not fit `a`", [("a", "[n] = (4,)"), ("b", "[n] = (3,)", "n was 4")], "Pass 4."))
        `b` does not fit `a`
          a  [n] = (4,)
          b  [n] = (3,)      <- n was 4
        Pass 4.
    """
    table = [(label, fact, "".join(note)) for label, fact, *note in rows]
    label_width = max([0, *[len(label) for label, _, _ in table]])  # a form that torch.compile can trace
    fact_width = max([0, *[len(fact) for _, fact, _ in table]])
    lines = [headline]
    for label, fact, note in table:
        arrow = f"      <- {note}" if note else ""
        lines.append(f"  {label:{label_width}}  {fact:{fact_width}}{arrow}".rstrip())
    if remedy:
        lines.append(remedy)
    return "\n".join(lines)


def internal_error(kind: Callable[[str], Error], headline: str, rows: Iterable[tuple[str, ...]] = ()) -> Error:
    """Create an error that is a bug of tinsmith: its message asks the caller to report it.

    Example:
        >>> internal_error(GradientError, "the tape of op `f` is too short").is_internal
        True
    """
    error = kind(refusal(headline, rows, "Report this as a bug of tinsmith, with the kernel."))
    error.is_internal = True
    return error


def sentence(words: str) -> str:
    """Format words as a sentence: a capital letter first, a full stop at the end."""
    return f"{words[0].upper()}{words[1:]}."


def count_noun(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    Example:
        >>> count_noun(1, "file"), count_noun(2, "file")
        ('1 file', '2 files')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


_MOST_SHOWN = 160
"""The number of characters of a line that an error shows."""


def point_at(text: str, column: int) -> list[tuple[str, str]]:
    """Return rows for `refusal`: the line of `text` at position `column` of the text, and a caret under
    that position.

    A line of over 160 characters is cut to those around the position, between dots.

    Example:
        >>> print(refusal("`y` has no brackets", point_at("x[n] -> y", 8), "Write `y[n]`."))
        `y` has no brackets
          x[n] -> y
                  ^
        Write `y[n]`.
    """
    column = min(column, len(text.rstrip()))
    start = text.rfind("\n", 0, column) + 1
    line = text[start:].partition("\n")[0].replace("\t", " ").rstrip()
    if not line:
        return []
    place, shown = column - start, line.lstrip()
    place -= len(line) - len(shown)
    if len(shown) > _MOST_SHOWN:
        first = max(0, min(place - _MOST_SHOWN // 2, len(shown) - _MOST_SHOWN))
        end = first + _MOST_SHOWN
        head, tail = "..." if first else "", "..." if end < len(shown) else ""
        shown, place = f"{head}{shown[first:end]}{tail}", place - first + len(head)
    return [(shown, ""), (" " * place + "^", "")]


def nearest(word: str, known: Sequence[str]) -> str:
    """Find the known word that `word` is probably a misspelling of, ignoring case; "" if none is close.

    Example:
        >>> nearest("flot", ["float", "int"])
        'float'
    """
    import difflib  # imported only for error messages, to keep `import tinsmith` fast

    close = difflib.get_close_matches(word.lower(), [one.lower() for one in known], n=1, cutoff=0.5)
    alike = [one for one in known if one.lower() in close]
    return max(alike, key=lambda one: sum(map(str.__eq__, one, word)), default="")
