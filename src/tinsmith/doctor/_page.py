"""Pages: a report for browsers in one self-contained file: source with findings at their lines, heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from .._errors import sentence
from .._version import __version__
from ..linter import RULES, SEVERITIES, Finding
from ._excerpt import choose_excerpts, read_lines, shorten_path
from ._heat import compute_relative_errors, draw_heat_map
from ._style import STYLE
from ._terminal import causes, describe_engine_findings, describe_followers

if TYPE_CHECKING:
    from ._gradcheck_result import Gradcheck
    from ._report_contents import ReportContents
    from .gradients import InputDerivatives


def page(report: ReportContents) -> str:
    """Return a report as a whole HTML page."""
    title = escape(f"check of {report.name}")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>tinsmith: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            *_head(report),
            *_list(causes(report.findings)),
            *_sources(report),
            *(piece for label, one in report.gradients.items() for piece in _gradient(label, one)),
            *_rules(report),
            "</body>\n</html>\n",
        ]
    )


def _head(report: ReportContents) -> Iterator[str]:
    yield f"<h1>{_words(f'check of {report.name}')}</h1>"
    looked, words = f"{', '.join(report.looked)} · " if report.looked else "", f"{report.verdict}: {report.summary}"
    yield f'<div><span class="verdict {"good" if report.ok else "bad"}">{escape(words)}</span>'
    yield f' <span class="faint">· {escape(looked)}tinsmith {__version__}</span></div>'
    if report.aside:
        yield f'<p class="faint">{_words(describe_engine_findings(report.aside))}</p>'
    if report.coverage:
        yield f'<p class="faint">{escape(report.coverage)}</p>'


def _list(findings: Mapping[Finding, list[Finding]]) -> Iterator[str]:
    """Yield the table of findings, the most severe first, each with a link to its source line and the findings that
    follow from it.
    """
    if not findings:
        return
    yield '<table class="list">'
    for place, one in sorted(enumerate(findings), key=lambda pair: SEVERITIES.index(pair[1].severity)):
        more = f'<br><span class="faint">{describe_followers(findings[one])}</span>' if findings[one] else ""
        link = f'<a class="mono" href="#finding-{place}">{escape(shorten_path(one.path))}:{one.line}</a>'
        yield f'<tr class="{one.severity}"><td><b class="{one.severity}">{one.severity}</b></td>'
        yield f'<td class="mono">{_link(one.rule)}</td><td>{link}</td><td>{_words(one.message)}{more}</td></tr>'
    yield "</table>"


def _sources(report: ReportContents) -> Iterator[str]:
    shown = causes(report.findings)
    paths = dict.fromkeys([*(one.path for one in report.findings), *(path for path, _ in report.places)])
    for path in paths:
        own = [_Card(place, one, shown[one]) for place, one in enumerate(shown) if one.path == path]
        followers = [one for several in shown.values() for one in several if one.path == path]
        starts = [line for other, line in report.places if other == path]
        yield f'<h2 class="mono">{escape(shorten_path(path))}</h2>'
        yield from _source(path, own, followers, starts)


class _Card(NamedTuple):
    """A finding, its number in the list, and the findings that follow from it."""

    place: int
    finding: Finding
    followers: list[Finding]


def _source(path: str, cards: list[_Card], followers: list[Finding], starts: list[int]) -> Iterator[str]:
    """Yield the source lines around findings, with a card below each line. Findings that follow from others only mark
    their lines.
    """
    lines = read_lines(path)
    colored = _highlight_tokens(lines)
    at = {line: list(own) for line, own in groupby(cards, key=lambda card: card.finding.line)}
    marks: dict[int, list[Finding]] = {}
    for one in [*(card.finding for card in cards), *followers]:
        marks.setdefault(one.line, []).append(one)
    yield '<div class="source">'
    for line in [line for line in at if not 1 <= line <= len(lines)]:  # the file was removed or shortened
        yield from map(_card_below, at[line])
    spans = choose_excerpts(lines, [*marks, *starts])
    for span in spans:
        if span.start > 1:
            yield '<div class="gap">⋯</div>'
        for line in span:
            yield _row(line, colored[line - 1], marks.get(line, []))
            yield from (_card_below(card, lines[line - 1]) for card in at.get(line, []))
    if spans and spans[-1].stop <= len(lines):
        yield '<div class="gap">⋯</div>'
    yield "</div>"


def _row(line: int, code: str, findings: list[Finding]) -> str:
    worst = min((one.severity for one in findings), key=SEVERITIES.index, default="")
    marked = f" marked {worst}" if worst else ""
    return f'<div class="row{marked}"><span class="number mono">{line}</span><code>{code}</code></div>'


def _card_below(card: _Card, line: str = "") -> str:
    """Return the HTML of a finding below its line, with a caret if the column is known."""
    one, caret = card.finding, ""
    if line.strip() and 1 <= one.column <= len(line):
        blank = escape(" " * (one.column - 1))
        caret = f'<div class="row {one.severity}"><span></span><code>{blank}<span class="caret">▲</span></code></div>'
    rule = RULES.get(one.rule)
    own = ", of the engine's own gradient" if one.engines else ""
    name = f' <span class="faint">{escape(rule.name + own)}</span>' if rule else ""
    remedy = f'<p class="label">Write instead:</p><pre>{escape(one.remedy)}</pre>' if one.remedy else ""
    more = f'<p class="faint">{describe_followers(card.followers)}</p>' if card.followers else ""
    return (
        f'{caret}<div class="finding {one.severity}" id="finding-{card.place}">'
        f'<b class="{one.severity}">{one.severity} {_link(one.rule)}</b>{name}'
        f"<p>{_words(one.message)}</p>{more}{remedy}</div>"
    )


def _gradient(label: str, gradient: Gradcheck) -> Iterator[str]:
    color = "good" if gradient.ok else "bad"
    yield f'<h2>gradient of {escape(label)}: <span class="verdict {color}">{gradient.verdict}</span></h2>'
    yield f'<pre class="words">{escape(gradient.summary)}</pre>'
    yield '<div class="maps">'
    yield from (_picture(one) for one in gradient.inputs if one.reference is not None)
    yield "</div>"


def _picture(one: InputDerivatives) -> str:
    """Return the HTML of a heat map of the errors by one input; without a picture if the input is empty."""
    name, shape = escape(one.name), ", ".join(map(str, one.op.shape))
    errors = compute_relative_errors(one.op, one.op if one.reference is None else one.reference)
    words = f'<span class="faint">({shape}) error relative to the greatest derivative</span>'
    picture = f'<img src="{draw_heat_map(errors)}" alt="errors of the gradient of {name}">' if errors.size else ""
    return f"<figure><figcaption><code>{name}</code> {words}</figcaption>{picture}</figure>"


def _rules(report: ReportContents) -> Iterator[str]:
    """Yield the descriptions of the rules in the findings, to which the findings link."""
    rules = sorted({one.rule for one in report.findings} & RULES.keys())
    if not rules:
        return
    yield "<h2>Rules</h2>\n<dl>"
    for rule in (RULES[one] for one in rules):
        yield f'<dt id="rule-{rule.id}"><b class="mono">{rule.id}</b> {escape(rule.name)}</dt>'
        yield f"<dd>{_words(sentence(rule.about))}</dd>"
    yield "</dl>"


def _link(rule: str) -> str:
    """Return the HTML of a rule's id, linked to its description."""
    return f'<a href="#rule-{rule}">{escape(rule)}</a>' if rule in RULES else escape(rule)


def _highlight_tokens(lines: list[str]) -> list[str]:
    """Return lines of Python as HTML with highlighted syntax."""
    from pygments import highlight  # a dependency of rich
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    text = highlight("\n".join(lines), PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True))
    colored = text.removesuffix("\n").split("\n")
    # A lexer may see line ends where Python does not (a form feed); then show the lines without colors.
    return colored if len(colored) == len(lines) else [escape(line) for line in lines]


def _words(message: str) -> str:
    """Convert a sentence to HTML, with `code` marked as code."""
    parts = escape(message).split("`")
    if len(parts) % 2 == 0:
        return escape(message)
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
