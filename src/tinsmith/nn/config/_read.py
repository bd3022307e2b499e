"""Reading: from a file, a text or a mapping to plain values. Nothing here knows what the keys mean.

Comments and trailing commas are blanked out, character for character, so that the standard parser's
line and column point into the file as it was written. A JSON5 library would do it too, at the price
of a dependency and of much that tiny-cuda-nn does not read (single quotes, bare keys, hex, NaN).
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

# Neither may fail at its end, or a text that repeats its beginning takes quadratic time: the closing quote is optional,
# and a comment may end with the text, which `_blank` then leaves as it is.
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
    if isinstance(source, str) and _without_comments(source).lstrip().startswith("{"):
        return _parse_json(source, "The configuration")
    if isinstance(source, (str, Path)):
        return _parse_json(_text_of(Path(source)), f"The configuration {source}")
    raise ConfigError(
        refusal(
            "This is not a configuration.",
            [("got", type(source).__name__), ("expected", "a path to a JSON file, a JSON text, or a mapping")],
        )
    )


def _text_of(path: Path) -> str:
    def make_error(reason: str) -> InputError:
        headline = f"The configuration {path} cannot be read."
        return InputError(refusal(headline, [("cause", reason)], "Pass a path to a JSON file."))

    try:
        return read_untrusted(path, make_error, CONFIGURATION_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise make_error(str(error)) from error


def _parse_json(text: str, name: str) -> dict[str, Any]:
    plain = _TRAILING_COMMAS.sub(_blank, _without_comments(text))
    try:
        value = parse_json(plain, object_pairs_hook=_once_each, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        headline = f"{name} is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}."
        raise ConfigError(refusal(headline, point_at(text, error.pos))) from error
    except _Unfit as error:
        raise ConfigError(refusal(f"{name} is ambiguous JSON: {error}.")) from error
    if not isinstance(value, dict):
        raise ConfigError(
            refusal(f"{name} is not a JSON object.", [("got", type(value).__name__)], "Begin it with `{`.")
        )
    return value


def _without_comments(text: str) -> str:
    return _COMMENTS.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:  # strings stay; all else becomes blanks, lines stay lines
    text = match[0]
    is_open_comment = text.startswith("/*") and (len(text) < 4 or not text.endswith("*/"))
    return text if text.startswith('"') or is_open_comment else re.sub(r"[^\n]", " ", text)


class _Unfit(Exception):
    """What the standard parser would let through."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise _Unfit(f"an object has the key {json.dumps(twice)} more than once")
    return values


def _no_constant(name: str) -> NoReturn:
    raise _Unfit(f"{name} is not a number in JSON")
