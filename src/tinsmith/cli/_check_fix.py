"""`tinsmith check --fix` and `--diff`: correct the findings of files whose fix is certain, or show the corrections."""

from __future__ import annotations

import difflib
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .._errors import InputError, refusal

if TYPE_CHECKING:
    from ..linter import Finding


class FixedFile(NamedTuple):
    """A file with findings that can be fixed: its text before and after, and how it is encoded."""

    path: Path
    before: str
    after: str
    encoding: str
    fixed: int

    def write(self) -> None:
        """Write the new text to the file, encoded as the old one is. Raises InputError."""
        try:
            self.path.write_bytes(self.after.encode(self.encoding))
        except (OSError, UnicodeEncodeError) as cause:
            rows = [("file", str(self.path)), (type(cause).__name__, str(cause))]
            raise InputError(refusal("the file cannot be fixed", rows, "Make it writable.")) from cause

    def diff(self) -> str:
        """Return the changes as a unified diff."""
        before, after = (list(io.StringIO(text, newline="")) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, str(self.path), str(self.path)))


def find_fixes(files: Iterable[Path], is_wanted: Callable[[Finding], bool]) -> Iterator[FixedFile]:
    """Yield the files in which findings can be fixed. Files that cannot be read or parsed are left to the check."""
    from ..doctor import ignore_syntax_warnings
    from ..linter import fix_text

    for path in filter(Path.is_file, files):
        try:
            with path.open("rb") as file:
                encoding = tokenize.detect_encoding(file.readline)[0]
            before = path.read_bytes().decode(encoding)
            # Findings have the whole path, as those of a check.
            with ignore_syntax_warnings():
                after, fixed = fix_text(str(path.resolve()), before, is_wanted)
        except (OSError, SyntaxError, ValueError, LookupError, RuntimeError, MemoryError, RecursionError):
            continue
        if fixed:
            yield FixedFile(path, before, after, encoding, len(fixed))
