"""Reading: files, texts and mappings; comments; and what is no configuration."""

from __future__ import annotations

import pytest

from tinsmith import ConfigError, InputError
from tinsmith.nn.config import read

COMMENTED = """// A configuration as tiny-cuda-nn's documentation shows them.
{
    "loss": { "otype": "L2" }, // not the default
    /* several
       lines, with "quotes" and // inside */
    "network": { "name": "a // b /* c */ \\" // d", "widths": [1, 2, /* 3 */], },
}
"""
MEANT = {"loss": {"otype": "L2"}, "network": {"name": 'a // b /* c */ " // d', "widths": [1, 2]}}


def test_a_text():
    assert read(COMMENTED) == MEANT


@pytest.mark.parametrize("as_given", [str, lambda path: path])
def test_a_file(tmp_path, as_given):
    path = tmp_path / "config.json"
    path.write_text("\ufeff" + COMMENTED, encoding="utf-8")
    assert read(as_given(path)) == MEANT


def test_a_mapping_is_copied():
    given = {"encoding": {"n_bins": 4}}
    copied = read(given)
    assert copied == given
    copied["encoding"]["n_bins"] = 5
    assert given["encoding"]["n_bins"] == 4


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ('{"a": 1 // one\n "b": 2}', ConfigError, ["line 2, column 2", '"b": 2}', "^"]),
        ('{"a": 1,, "b": 2}', ConfigError, ["is not valid JSON", "line 1, column 9"]),
        ('{"a": "un', ConfigError, ["is not valid JSON", "line 1, column 7"]),
        ('{"a": 1} /* open', ConfigError, ["is not valid JSON: Extra data"]),
        ("{" + '"\\' * 100_000, ConfigError, ["is not valid JSON"]),
        ('{"a": 1' + "/*/" * 100_000, ConfigError, ["is not valid JSON"]),
        ("{" + ", ".join(f'"{key}": 1' for key in (*range(50_000), 0)) + "}", ConfigError, ['the key "0" more']),
        ('{"a": ' + "[" * 5000, ConfigError, ["Nested more than 200 deep, line 1, column 206"]),
        ('{"a": 1' + "0" * 300 + "}", ConfigError, ["A number of more than 300 digits, line 1, column 7"]),
        ('{"a": 1e999}', ConfigError, ["A number beyond the range of float64, line 1, column 7"]),
        ('{"a": "\\ud800"}', ConfigError, ["A `\\u` escape for half of a surrogate pair"]),
        ("a\0b.json", InputError, ["no file can have this name"]),
        ('{"a": NaN}', ConfigError, ["it has NaN, which JSON does not have"]),
        ('{"a": 1, "a": 2}', ConfigError, ['has the key "a" more than once']),
        ("nowhere/config.json", InputError, ["nowhere/config.json cannot be read", "No such file"]),
        (3, ConfigError, ["This is not a configuration", "got       int", "a path to a JSON file"]),
    ],
)
def test_invalid_configurations_are_refused(source, error, words):
    with pytest.raises(error) as caught:
        read(source)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_a_json_file_without_an_object_is_refused(tmp_path):
    path = tmp_path / "list.json"
    path.write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(ConfigError, match="list.json is not a JSON object"):
        read(path)
