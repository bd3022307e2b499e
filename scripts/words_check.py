"""Names and words that the style rules out, with their places: what ./scripts/words prints.

Three rules: a function has no bare participle for a name (`told`: who told what to whom?), a local has no participle
of `LOCALS`, and texts have no phrase of `PHRASES`. What is left from before stands in scripts/words_exceptions.txt, a
line for each file and rule with how often it is broken there. The list only shrinks: more is a mistake, and so is less
until the line says so. `--write` writes the smaller numbers.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EXCEPTIONS = Path(__file__).with_name("words_exceptions.txt")

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

# Locals of these names do not say what they hold: `found` is a list, a name, an operator.
LOCALS = {"found", "told", "came"}
LOCALS_ONLY = ("benchmarks", "examples", "scripts", "tests")
"""Folders whose functions may be named as they like: fixtures and helpers are read beside their uses."""

# What to write instead of a phrase. The keys are regular expressions.
PHRASES = {
    r"\bthat there (?:is|are) not\b": "say what is out of range: `row index out of range`",
    r", which the \w+ has not\b": "`x` is not a parameter of the kernel",
    r"\bis no (?:JSON|tuple|list|number|name|tensor|kernel)\b": "is not a ...",
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
}


class Breach(NamedTuple):
    """A place where a rule is broken, and what to do."""

    path: str
    line: int
    rule: str
    words: str


def is_participle(name: str) -> bool:
    """Whether a name is a past participle alone: `told`, `_merged`; not `told_in_order`, not `seed`."""
    bare = name.strip("_")
    is_regular = re.fullmatch(r"[a-z]+ed", bare) is not None and bare not in VERBS
    return bare in IRREGULAR or is_regular


def check_source(path: str, text: str) -> Iterator[Breach]:
    """Names of functions and locals in a file of Python; of a test or a script those of locals alone."""
    names_functions = not path.startswith(tuple(f"{folder}/" for folder in LOCALS_ONLY))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if names_functions and is_participle(node.name) and not _is_property(node):
                yield Breach(path, node.lineno, "function", f"`{node.name}`: begin with a verb in its plain form")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in LOCALS:
            yield Breach(path, node.lineno, "local", f"`{node.id}`: say what it holds")


def check_text(path: str, text: str) -> Iterator[Breach]:
    """Phrases in a file, whatever it is written in."""
    for phrase, instead in PHRASES.items():
        for match in re.finditer(phrase, text):
            line = text.count("\n", 0, match.start()) + 1
            yield Breach(path, line, "phrase", f"`{match[0]}`: write `{instead}`")


def check_all(root: Path = ROOT) -> list[Breach]:
    """Everything that breaks a rule in the package, its pages and examples; and locals of tests and scripts."""
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


def read_exceptions(text: str) -> Counter[tuple[str, str]]:
    """How often a file may break a rule."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return Counter({(path, rule): int(count) for path, rule, count in rows})


def compare(breaches: list[Breach], allowed: Counter[tuple[str, str]]) -> tuple[list[Breach], list[str]]:
    """The breaches of files that have more than they may, and what is stale in the exceptions."""
    counts = Counter((one.path, one.rule) for one in breaches)
    more = [one for one in breaches if counts[one.path, one.rule] > allowed[one.path, one.rule]]
    stale = [f"{path} {rule} {count}" for (path, rule), count in allowed.items() if counts[path, rule] < count]
    return more, stale


def main() -> int:
    """Print what breaks a rule; 1 if something does."""
    parser = argparse.ArgumentParser(prog="words", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write smaller numbers into the list of exceptions")
    breaches, text = check_all(), EXCEPTIONS.read_text(encoding="utf-8")
    allowed = read_exceptions(text)
    if parser.parse_args().write:
        counts = Counter((one.path, one.rule) for one in breaches)
        smaller = {key: min(count, counts[key]) for key, count in allowed.items()}
        head = [line for line in text.splitlines() if line.startswith("#")]
        rows = [f"{path} {rule} {count}" for (path, rule), count in sorted(smaller.items()) if count]
        EXCEPTIONS.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")
        allowed = Counter(smaller)
    more, stale = compare(breaches, allowed)
    for one in more:
        print(f"{one.path}:{one.line}: {one.rule}: {one.words}")
    for row in stale:
        print(f"scripts/words_exceptions.txt: {row}: fewer by now; run ./scripts/words --write")
    return int(bool(more or stale))


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is used as an attribute, whose name may be an adjective; or is an old name."""
    return any(re.search(r"property|lazy|setter|deprecated", ast.unparse(one)) for one in node.decorator_list)


if __name__ == "__main__":
    raise SystemExit(main())
