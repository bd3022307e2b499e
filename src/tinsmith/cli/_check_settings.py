"""Settings of `tinsmith check`: the table `[tool.tinsmith.check]` of a project's pyproject.toml."""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .._errors import InputError, nearest, refusal

_TABLE = "[tool.tinsmith.check]"
_FILE = "pyproject.toml"


@dataclass(frozen=True)
class CheckSettings:
    """What a project sets for its checks.

    Attributes:
        file: the pyproject.toml that has them; None if there is none.
        select: ids and prefixes of the rules to report; None for all.
        ignore: ids and prefixes of rules to leave out.
        per_file_ignores: rules to leave out, by the pattern of the files.
        exclude: patterns of files and folders that are not checked.
        baseline: the file with known findings.
    """

    file: Path | None = None
    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    per_file_ignores: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    exclude: Sequence[str] = ()
    baseline: Path | None = None

    def excludes(self, path: Path) -> bool:
        """Return True if a file or folder is not to be checked."""
        return any(self._matches(path, pattern) for pattern in self.exclude)

    def find_ignored_rules(self, path: Path) -> tuple[str, ...]:
        """Return ids and prefixes of the rules that are left out in a file."""
        return tuple(
            rule for pattern, rules in self.per_file_ignores.items() if self._matches(path, pattern) for rule in rules
        )

    def _matches(self, path: Path, pattern: str) -> bool:
        """Return True if a pattern matches a path, or one of the folders that it is in.

        A pattern with a slash is relative to the folder of pyproject.toml; another one is the name of a file or folder.
        """
        if self.file is None:
            return False
        try:
            inside = Path(os.path.realpath(path)).relative_to(os.path.realpath(self.file.parent))
        except ValueError:  # not in the project
            return False
        tested = [inside, *inside.parents][:-1]
        names = [one.as_posix() for one in tested] if "/" in pattern.rstrip("/") else [one.name for one in tested]
        return any(_compile(pattern).fullmatch(name) for name in names)


@functools.cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern: `*` and `?` match no slash, `**` matches any folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.removeprefix("./").strip("/"))
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part) or re.escape(part) for part in parts))


def read_settings(places: Iterable[Path]) -> CheckSettings:
    """Return the settings of the project that the files and folders are in.

    They are those of the nearest pyproject.toml with a table [tool.tinsmith] in the common folder of all, or above it.

    Raises:
        InputError: the file is no TOML, or a key is unknown or has an invalid value.
    """
    located = _find_table(places)
    if located is None:
        return CheckSettings()
    file, tools = located
    table = _require_keys(tools, ("check",), "[tool.tinsmith]", file)
    content = _require_keys(
        table.get("check", {}), ("select", "ignore", "per-file-ignores", "exclude", "baseline"), _TABLE, file
    )
    ignores = cast("dict[str, Any]", content.get("per-file-ignores", {}))
    if not isinstance(ignores, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  # a file may have anything
        raise _invalid("per-file-ignores", "a table of patterns and lists of rules", ignores, file)
    baseline = content.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        raise _invalid("baseline", "the path of a file", baseline, file)
    return CheckSettings(
        file,
        _read_list(content, "select", file) if "select" in content else None,
        _read_list(content, "ignore", file),
        {pattern: _read_list(ignores, pattern, file) for pattern in ignores},
        _read_list(content, "exclude", file),
        None if baseline is None else file.parent / baseline,
    )


def find_settings_files(places: Iterable[Path]) -> list[Path]:
    """Return the pyproject.toml files in the common folder of the places and above it, the nearest first."""
    folders = [os.path.abspath(one if one.is_dir() else one.parent) for one in places]
    try:
        common = Path(os.path.commonpath(folders))
    except ValueError:  # on several drives
        return []
    return [folder / _FILE for folder in (common, *common.parents) if (folder / _FILE).is_file()]


def _find_table(places: Iterable[Path]) -> tuple[Path, Any] | None:
    """Return the nearest pyproject.toml with a table [tool.tinsmith], and that table; None if there is none."""
    for file in find_settings_files(places):
        tools = _read_tools(file)
        if "tinsmith" in tools:
            return file, tools["tinsmith"]
    return None


def _read_tools(file: Path) -> dict[str, Any]:
    """Return the table [tool] of a file that mentions tinsmith; an empty one for any other file."""
    try:
        data = file.read_bytes()
    except OSError as cause:
        rows = [("file", str(file)), (type(cause).__name__, cause.strerror or str(cause))]
        raise InputError(refusal("the settings cannot be read", rows, "Make the file readable.")) from cause
    if b"tinsmith" not in data:
        return {}
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        toml: Any = importlib.import_module(name)
    except ModuleNotFoundError as cause:
        words = f"settings in {_FILE} need `{name}`, which is not installed"
        raise InputError(refusal(words, [("file", str(file))], f"Run pip install {name}.")) from cause
    try:
        tools: Any = toml.loads(data.decode()).get("tool")
    except ValueError as cause:  # TOMLDecodeError and UnicodeDecodeError
        rows = [("file", str(file)), ("because", str(cause))]
        raise InputError(refusal("the settings are not valid TOML", rows, "Correct the file.")) from cause
    return cast("dict[str, Any]", tools) if isinstance(tools, dict) else {}


def _require_keys(table: Any, known: Sequence[str], name: str, file: Path) -> dict[str, Any]:
    """Return a table. Raise InputError if it is no table, or has an unknown key."""
    if not isinstance(table, dict):
        raise _invalid(name, "a table", table, file)
    for key in cast("dict[str, Any]", table):
        if key not in known:
            guess = nearest(key.replace("_", "-"), known)
            remedy = f"Did you mean `{guess}`?" if guess else f"The keys are: {', '.join(known)}."
            raise InputError(refusal(f"{name} has no key `{key}`", [("file", str(file))], remedy))
    return cast("dict[str, Any]", table)


def _read_list(table: Mapping[str, Any], key: str, file: Path) -> list[str]:
    value: Any = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in cast("list[Any]", value)):
        raise _invalid(key, 'a list of strings, as ["TS105"]', value, file)
    return cast("list[str]", value)


def _invalid(key: str, expected: str, value: Any, file: Path) -> InputError:
    rows = [("file", str(file)), ("expected", expected), ("got", repr(value))]
    remedy = "Write the expected value, or leave the key out."
    return InputError(refusal(f"`{key}` in {_TABLE} has an invalid value", rows, remedy))
