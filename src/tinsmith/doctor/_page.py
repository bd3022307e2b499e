"""Page: a report for browsers, in one file that needs no other: source with findings at their lines, heat maps."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from .._version import __version__
from ..linter import RULES, SEVERITIES, Finding
from ._excerpt import excerpts, lines_of, shown_path
from ._heat import heat_map, relative_errors
from ._style import STYLE
from ._terminal import told_aside

if TYPE_CHECKING:
    from ._gradcheck_result import Gradcheck
    from ._report import Report
    from .gradients import Compared


def page(report: Report) -> str:
    """The whole page, as HTML."""
    title = escape(f"check of {report.name}")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>tinsmith: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            *_head(report),
            *_list(report.findings),
            *_sources(report),
            *(piece for label, one in report.gradients.items() for piece in _gradient(label, one)),
            "</body>\n</html>\n",
        ]
    )


def _head(report: Report) -> Iterator[str]:
    yield f"<h1>{_words(f'check of {report.name}')}</h1>"
    looked, words = f"{', '.join(report.looked)} · " if report.looked else "", f"{report.verdict}: {report.summary}"
    yield f'<div><span class="verdict {"good" if report.ok else "bad"}">{escape(words)}</span>'
    yield f' <span class="faint">· {escape(looked)}tinsmith {__version__}</span></div>'
    if report.aside:
        yield f'<p class="faint">{_words(told_aside(report.aside))}</p>'


def _list(findings: list[Finding]) -> Iterator[str]:
    """The findings in short, the worst first, each with a link to where it stands."""
    if not findings:
        return
    yield '<table class="list">'
    for place, one in sorted(enumerate(findings), key=lambda pair: SEVERITIES.index(pair[1].severity)):
        link = f'<a class="mono" href="#finding-{place}">{escape(shown_path(one.path))}:{one.line}</a>'
        yield f'<tr class="{one.severity}"><td><b class="{one.severity}">{one.severity}</b></td>'
        yield f'<td class="mono">{escape(one.rule)}</td><td>{link}</td><td>{_words(one.message)}</td></tr>'
    yield "</table>"


def _sources(report: Report) -> Iterator[str]:
    numbered = list(enumerate(report.findings))
    paths = dict.fromkeys([*(one.path for one in report.findings), *(path for path, _ in report.places)])
    for path in paths:
        own = [(place, one) for place, one in numbered if one.path == path]
        starts = [line for other, line in report.places if other == path]
        yield f'<h2 class="mono">{escape(shown_path(path))}</h2>'
        yield from _source(path, own, starts)


def _source(path: str, findings: list[tuple[int, Finding]], starts: list[int]) -> Iterator[str]:
    lines = lines_of(path)
    coloured = _coloured(lines)
    at = {line: list(own) for line, own in groupby(findings, key=lambda pair: pair[1].line)}
    yield '<div class="source">'
    for line in [line for line in at if not 1 <= line <= len(lines)]:  # a file that is not there any more
        yield from (_card(*pair) for pair in at[line])
    spans = excerpts(lines, [*at, *starts])
    for span in spans:
        if span.start > 1:
            yield '<div class="gap">⋯</div>'
        for line in span:
            yield _row(line, coloured[line - 1], at.get(line, []))
            yield from (_card(*pair, lines[line - 1]) for pair in at.get(line, []))
    if spans and spans[-1].stop <= len(lines):
        yield '<div class="gap">⋯</div>'
    yield "</div>"


def _row(line: int, code: str, findings: list[tuple[int, Finding]]) -> str:
    worst = min((one.severity for _, one in findings), key=SEVERITIES.index, default="")
    marked = f" marked {worst}" if worst else ""
    return f'<div class="row{marked}"><span class="number mono">{line}</span><code>{code}</code></div>'


def _card(place: int, one: Finding, line: str = "") -> str:
    """A finding below its line, with a caret where the column is known."""
    caret = ""
    if line.strip() and 1 <= one.column <= len(line):
        blank = escape(" " * (one.column - 1))
        caret = f'<div class="row {one.severity}"><span></span><code>{blank}<span class="caret">▲</span></code></div>'
    rule = RULES.get(one.rule)
    own = ", of the engine's own gradient" if one.is_of_engines else ""
    name = f' <span class="faint">{escape(rule.name + own)}</span>' if rule else ""
    remedy = f"<pre>{escape(one.remedy)}</pre>" if one.remedy else ""
    return (
        f'{caret}<div class="finding {one.severity}" id="finding-{place}">'
        f'<b class="{one.severity}">{one.severity} {escape(one.rule)}</b>{name}'
        f"<p>{_words(one.message)}</p>{remedy}</div>"
    )


def _gradient(label: str, gradient: Gradcheck) -> Iterator[str]:
    colour = "good" if gradient.ok else "bad"
    yield f'<h2>gradient of {escape(label)}: <span class="verdict {colour}">{gradient.verdict}</span></h2>'
    yield f'<pre class="words">{escape(gradient.summary)}</pre>'
    yield '<div class="maps">'
    yield from (_picture(one) for one in gradient.inputs if one.reference is not None)
    yield "</div>"


def _picture(one: Compared) -> str:
    """The errors of one input's gradient; an empty input has none."""
    name, shape = escape(one.name), ", ".join(map(str, one.op.shape))
    errors = relative_errors(one.op, one.op if one.reference is None else one.reference)
    words = f'<span class="faint">({shape}) error relative to the greatest derivative</span>'
    picture = f'<img src="{heat_map(errors)}" alt="errors of the gradient of {name}">' if errors.size else ""
    return f"<figure><figcaption><code>{name}</code> {words}</figcaption>{picture}</figure>"


def _coloured(lines: list[str]) -> list[str]:
    """Lines of Python with their tokens marked."""
    from pygments import highlight  # it comes with rich
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    text = highlight("\n".join(lines), PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True))
    coloured = text.removesuffix("\n").split("\n")
    # A lexer may see line ends where Python does not (a form feed): better no colours than wrong lines.
    return coloured if len(coloured) == len(lines) else [escape(line) for line in lines]


def _words(message: str) -> str:
    """A sentence in which `code` is set as code."""
    parts = escape(message).split("`")
    if len(parts) % 2 == 0:
        return escape(message)
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
