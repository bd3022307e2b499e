"""`read`: a configuration as plain values, from a file, a string or a mapping. The keys' meaning is left to `_resolve`.

Each character of a comment or a trailing comma is replaced by a blank, so that the line and column in an error of
Python's JSON parser are right for the original file. A JSON5 library would be a further dependency, and would accept
much that tiny-cuda-nn does not read (single quotes, bare keys, hex, NaN).
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..._errors import ConfigError, InputError, point_at, refusal
from ..._untrusted import CONFIGURATION_BYTES, parse_json, read_untrusted

# An unterminated string or comment must match too: if it failed, a text with many openings would take quadratic time.
# So the closing quote is optional, and a comment may end with the text; `_blank` then leaves the comment unchanged.
_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")


def read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Read a configuration as plain values, from a JSON file, a JSON string, or a mapping (copied).

    JSON may have `//` and `/* */` comments and trailing commas.

    Args:
        source: a path; or the JSON itself, which begins with `{`; or a mapping.

    Raises:
        InputError: the file cannot be read.
        ConfigError: the text is not a JSON object, or a key occurs twice.

    Example:
        >>> ts.nn.read('{"n_bins": 16, /* a power of two */ }')
        {'n_bins': 16}
    """
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source))
    if isinstance(source, str) and _blank_comments(source).lstrip().startswith("{"):
        return _parse_json(source, "The configuration")
    if isinstance(source, (str, Path)):
        return _parse_json(_read_text(Path(source)), f"The configuration {source}")
    raise ConfigError(
        refusal(
            "This is not a configuration",
            [("got", type(source).__name__), ("expected", "a path to a JSON file, a JSON text, or a mapping")],
        )
    )


def _read_text(path: Path) -> str:
    def make_error(reason: str) -> InputError:
        headline = f"The configuration {path} cannot be read"
        return InputError(refusal(headline, [("cause", reason)], "Pass a path to a JSON file."))

    try:
        return read_untrusted(path, make_error, CONFIGURATION_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise make_error(str(error)) from error


def _parse_json(text: str, name: str) -> dict[str, Any]:
    plain = _TRAILING_COMMAS.sub(_blank, _blank_comments(text))
    try:
        value = parse_json(plain, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        headline = f"{name} is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise ConfigError(refusal(headline, point_at(text, error.pos))) from error
    except _Unfit as error:
        raise ConfigError(refusal(f"{name} is not valid JSON: {error}")) from error
    if not isinstance(value, dict):
        remedy = "Begin it with `{`."
        raise ConfigError(refusal(f"{name} is not a JSON object", [("got", type(value).__name__)], remedy))
    return value


def _blank_comments(text: str) -> str:
    return _COMMENTS.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    """Return a match with all but its newlines replaced by blanks. A string or an unterminated comment stays."""
    text = match[0]
    is_open_comment = text.startswith("/*") and (len(text) < 4 or not text.endswith("*/"))
    return text if text.startswith('"') or is_open_comment else re.sub(r"[^\n]", " ", text)


class _Unfit(Exception):
    """Raised for JSON that Python's parser accepts but a configuration may not have."""


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise _Unfit(f"an object has the key {json.dumps(twice)} more than once")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise _Unfit(f"it has {name}, which JSON does not have. Write a finite number")
