"""Names and words: what ./scripts/words rules out."""

from __future__ import annotations

import pytest
import words_check


@pytest.mark.costly
def test_no_name_and_no_phrase_is_ruled_out():
    breaches = words_check.check_all()
    assert not breaches, "\n" + "\n".join(f"{one.path}:{one.line}: {one.rule}: {one.words}" for one in breaches)


@pytest.mark.parametrize(
    ("name", "is_ruled_out"),
    [
        ("told", True),
        ("_merged", True),
        ("rewritten", True),
        ("seed", False),
        ("read", False),
        ("searchsorted", False),
        ("told_in_order", False),
    ],
)
def test_participles(name, is_ruled_out):
    assert words_check.is_participle(name) is is_ruled_out


SOURCES = {
    "a function": ("def told(x):\n    return x", ["function"]),
    "a method": ("class A:\n    def _kept(self):\n        return 1", ["function"]),
    "a property": ("class A:\n    @property\n    def saved(self):\n        return 1", ["property"]),
    "a lazy property": ("class A:\n    @lazy\n    def unmanaged(self):\n        return 1", ["property"]),
    "a property with a noun": ("class A:\n    @property\n    def saved_fields(self):\n        return 1", []),
    "a property that is a term": ("class A:\n    @property\n    def occupied(self):\n        return 1", []),
    "an old name": ("class A:\n    @property\n    @deprecated('x')\n    def apart(self):\n        return 1", []),
    "a field": ("@dataclass\nclass A:\n    wanted: bool = True", ["attribute"]),
    "an attribute": ("class A:\n    def __init__(self):\n        self._made = {}", ["attribute"]),
    "an attribute with a noun": ("class A:\n    def __init__(self):\n        self.records = {}", []),
    "a local": ("def collect(x):\n    found = [x]\n    return found", ["local"]),
    "a headline": ("def check(x):\n    raise E(refusal(f'`{x}` is missing.', rows, 'Pass it.'))", ["headline"]),
    "a headline by name": (
        "def check(a):\n    why = 'It is ' + ('gone.' if a else 'lost')\n    return refusal(why)",
        ["headline"],
    ),
    "a headline without a full stop": ("def check(x):\n    raise E(refusal('`x` is missing', (), 'Pass it.'))", []),
    "a verb": ("def collect(x):\n    names = [x]\n    return names", []),
}


@pytest.mark.parametrize(
    ("path", "rules"),
    [("src/f.py", ["function", "local"]), ("tests/f.py", ["local"]), ("scripts/pages/f.py", ["local"])],
)
def test_functions_of_tests_and_scripts_may_be_named_as_they_like(path, rules):
    text = "def told(x):\n    found = x\n    return found"
    assert [one.rule for one in words_check.check_source(path, text)] == rules


@pytest.mark.parametrize("case", SOURCES)
def test_names_in_a_file(case):
    text, rules = SOURCES[case]
    assert [one.rule for one in words_check.check_source("f.py", text)] == rules


def test_phrases_are_reported_with_line_and_suggestion():
    (breach,) = words_check.check_text("f.md", "Fine.\nA row is named that there is not.\n")
    assert breach.line == 2
    assert "row index out of range" in breach.words
