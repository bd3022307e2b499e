"""Find names and words that the style forbids, with their places: what ./scripts/words prints.

A function and a property have no bare participle for a name (`told`: who told what to whom?), a local and an attribute
have no word of `LOCALS` and `ATTRIBUTES`, texts have no phrase of `PHRASES`, and headlines of messages no full stop.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

# Past participles without -ed. Not `read`, `put`, `set`, `cut`, `split` and `run`, which are verbs too.
IRREGULAR = {
    "apart", "begun", "born", "bought", "bound", "broken", "brought", "built", "caught", "chosen", "done",
    "drawn", "driven", "fed", "forgotten", "found", "frozen", "given", "gone", "grown", "held", "hidden",
    "kept", "known", "laid", "left", "lent", "lost", "made", "meant", "met", "overwritten", "rebuilt", "remade",
    "rewritten", "said", "seen", "sent", "shown", "slid", "spent", "spread", "struck", "sunk", "taken",
    "thrown", "told", "torn", "undone", "unwritten", "withdrawn", "won", "worn", "written",
}  # fmt: skip
# Verbs and nouns that end like participles.
# `searchsorted` is what NumPy, torch and nerfacc call it.
VERBS = {"embed", "feed", "need", "seed", "shed", "speed", "succeed", "bed", "searchsorted"}
# Properties whose participle is a standard term: a mask of an occupancy grid, tiny-cuda-nn's part inside a part.
TERMS = {"nested", "occupied"}

# Locals of these names do not say what they hold: `found` is a list, a name, an operator.
LOCALS = {"found", "told", "came"}
# Attributes of these names do not say what they hold either, and neither do fields of a dataclass.
ATTRIBUTES = LOCALS | {"apart", "kept", "made", "wanted"}
LOCALS_ONLY = ("benchmarks", "examples", "scripts", "tests")
"""Folders whose functions may be named as they like: fixtures and helpers are read beside their uses."""

# What to write instead of a phrase. The keys are regular expressions.
PHRASES = {
    r"\bthat there (?:is|are) not\b": "say what is out of range: `row index out of range`",
    r", which the \w+ has not\b": "`x` is not a parameter of the kernel",
    r"\b(?:is|are) no (?:JSON|tuple|list|number|name|tensor|kernel)s?\b": "is not a ...",
    r"\bnames `[^`]*`, which is no\b": "`x` is not a ...",
    r"\bno \w+ came\b": "is empty, or is missing",
    r"\bwhich one wins is chance\b": "the result depends on the order of the iterations",
    r"\b(?:is|are) refused in words\b": "raises an error that says what is wrong",
    r"\bMistakes are told\b": "errors are reported",
    r"\band begins no more\b": "is exhausted and cannot be restarted",
    r"\bdraws what floats together\b": "penalizes scattered density",
    r"\bit is told (?:to|where)\b": "say who tells it: `until you press Finish`",
    r"\bgives none\b": "returns None, or: there is no ...",
    r"\bis told in one line\b": "is reported in one line",
    r"\b[Ww]ork(?:s|ed|ing)?\s+(?:it\s+|them\s+)?out\b": "compute",
    r"\bslow twins?\b": "reference in plain torch",
    r"\bin silence\b": "silently",
    r"\b(?:is not|are not|not|cannot) (?:to )?be had\b": "is not available",
    r"\bto the bit\b": "bitwise, exactly",
    r"\bin the place of\b": "instead of, in place of",
    r"\banew\b": "again",
    r"\bwrong whoever\b": "say for which of them",
}


class Breach(NamedTuple):
    """A place where a rule is broken, with a suggestion."""

    path: str
    line: int
    rule: str
    words: str


def is_participle(name: str) -> bool:
    """Return True if a name is a single past participle: `told`, `_merged`; not `told_in_order`, not `seed`."""
    bare = name.strip("_")
    is_regular = re.fullmatch(r"[a-z]+ed", bare) is not None and bare not in VERBS
    return bare in IRREGULAR or is_regular


def check_source(path: str, text: str) -> Iterator[Breach]:
    """Yield the forbidden names of functions, attributes and locals in a Python file; in a test or script, only those
    of locals.
    """
    is_package = not path.startswith(tuple(f"{folder}/" for folder in LOCALS_ONLY))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in LOCALS:
            yield Breach(path, node.lineno, "local", f"`{node.id}`: say what it holds")
        elif is_package:
            yield from _check_names(path, node)


def _check_names(path: str, node: ast.AST) -> Iterator[Breach]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _check_headlines(path, node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
        decorators = " ".join(map(ast.unparse, node.decorator_list))
        if "deprecated" in decorators:
            return
        if not re.search(r"property|lazy|setter", decorators):
            yield Breach(path, node.lineno, "function", f"`{node.name}`: begin with a verb in its plain form")
        elif node.name not in TERMS:
            yield Breach(path, node.lineno, "property", f"`{node.name}`: say what it gives, with a noun")
    elif isinstance(node, ast.ClassDef):
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                yield from _check_attribute(path, field.lineno, field.target.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield from _check_attribute(path, node.lineno, node.attr)


def _check_headlines(path: str, function: ast.AST) -> Iterator[Breach]:
    """Check the headlines of a function's messages, and the locals that hold them."""
    nodes = list(ast.walk(function))
    calls = [one for one in nodes if isinstance(one, ast.Call) and one.args]
    headlines = [one.args[0] for one in calls if ast.unparse(one.func).endswith(("refusal", ".refuse"))]
    names = {"headline", *(one.id for one in headlines if isinstance(one, ast.Name))}
    assigned = [one for one in nodes if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in names]
    for text in (*headlines, *(one.value for one in assigned)):
        yield from _check_headline(path, text)


def _check_headline(path: str, text: ast.expr) -> Iterator[Breach]:
    """Yield the places where a headline ends with a full stop."""
    match text:
        case ast.Constant(str(words)) if words.endswith("."):
            yield Breach(path, text.lineno, "headline", "leave out the full stop")
        case ast.JoinedStr([*_, last]):
            yield from _check_headline(path, last)
        case ast.BinOp(_, ast.Add(), last):
            yield from _check_headline(path, last)
        case ast.IfExp(_, one, other):
            yield from _check_headline(path, one)
            yield from _check_headline(path, other)


def _check_attribute(path: str, line: int, name: str) -> Iterator[Breach]:
    if name.strip("_") in ATTRIBUTES:
        yield Breach(path, line, "attribute", f"`{name}`: say what it holds")


def check_text(path: str, text: str) -> Iterator[Breach]:
    """Yield the forbidden phrases in a file of any kind."""
    for phrase, instead in PHRASES.items():
        for match in re.finditer(phrase, text):
            line = text.count("\n", 0, match.start()) + 1
            yield Breach(path, line, "phrase", f"`{match[0]}`: write `{instead}`")


def check_all(root: Path = ROOT) -> list[Breach]:
    """Return all breaches of the rules in the package, its pages and its examples, and in the locals of tests and
    scripts.
    """
    files = [root / "README.md", root / "CONTRIBUTING.md"]
    for folder, endings in (("src", {".py"}), ("docs", {".md"}), ("examples", {".py", ".md"})):
        files += sorted(one for one in (root / folder).rglob("*") if one.suffix in endings)
    breaches: list[Breach] = []
    for file in files:
        name, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        breaches += check_text(name, text)
        if name.startswith("src/"):
            breaches += check_source(name, text)
    for folder in LOCALS_ONLY:
        for file in sorted((root / folder).rglob("*.py")):
            breaches += check_source(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    return breaches


def main() -> int:
    """Print all breaches of the rules. Return 1 if there are any."""
    breaches = check_all()
    for one in breaches:
        print(f"{one.path}:{one.line}: {one.rule}: {one.words}")
    return int(bool(breaches))


if __name__ == "__main__":
    raise SystemExit(main())
