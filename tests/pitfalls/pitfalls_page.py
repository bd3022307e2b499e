"""The page docs/about/pitfalls.md: its table is written from the rows that tests go through.

    python tests/pitfalls/pitfalls_page.py        writes the table anew

What stands between the marks is the table; everything else on the page is written by hand.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from pitfalls import rows_of_calls, rows_of_kernels
from pitfalls.kernels import TEXTS, marked, text_of
from pitfalls.row import Row

ROWS = sorted(rows_of_kernels.ROWS + rows_of_calls.ROWS)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "about" / "pitfalls.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def tests_of(row: Row) -> list[tuple[Path, str]]:
    """Files and functions of the tests that show it."""
    found = []
    for one in row.shown:
        file, _, function = one.partition("::")
        found.append((ROOT / "tests" / ("" if "/" in file else "pitfalls") / file, function))
    return found


def named_by(row: Row) -> str:
    """Who names its kernel: "lint TS203, and TS204 for Taichi; sanitizer TS602"."""
    if row.name not in TEXTS:
        return ""
    of = {who: _rules(row.name, who) for who in ("taichi", "quadrants", "sanitizer")}
    both = [rule for rule in of["taichi"] if rule in of["quadrants"]]
    alone = {who: [rule for rule in of[who] if rule not in both] for who in ("taichi", "quadrants")}
    lint = [", ".join(both)] if both else []
    lint += [f"{', '.join(rules)} for {who.capitalize()}" for who, rules in alone.items() if rules]
    words = [f"lint {', and '.join(lint)}"] if lint else []
    words += [f"sanitizer {', '.join(of['sanitizer'])}"] if of["sanitizer"] else []
    return "; ".join(words)


def _rules(name: str, who: str) -> list[str]:
    return sorted({rule for rule, _ in marked(text_of(name, "taichi"), who)})


def table() -> str:
    """The table."""
    lines = ["| | what goes wrong | Taichi | Quadrants | tinsmith | named by |", "|---|---|---|---|---|---|"]
    for row in ROWS:
        path = tests_of(row)[0][0].relative_to(ROOT).as_posix()
        link = f"[{row.name.partition('_')[0]}](../../{path})"
        lines.append(f"| {link} | {row.wrong} | {row.taichi} | {row.quadrants} | {row.does} | {named_by(row)} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with its table."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
