"""Pages: a report for browsers in one self-contained file: source with findings at their lines, heat maps."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._errors import sentence
from .._version import __version__
from ..linter import RULES, SEVERITIES, Finding
from ._excerpt import choose_excerpts, read_lines, shorten_path
from ._terminal import causes, describe_engine_findings, describe_followers

if TYPE_CHECKING:
    import torch

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
            f"<title>tinsmith: {title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
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


# Heat maps of a gradient's errors. Errors are relative to the largest derivative, and all pictures have the same
# logarithmic scale: rounding errors look pale in all of them, a wrong element dark.
_SIDE = 512  # cells on a side at most; of more elements, several share a cell
_INCHES = 3.4
_LEAST, _GREATEST = 1e-10, 1.0


def compute_relative_errors(mine: torch.Tensor, true: torch.Tensor) -> np.ndarray:
    """Return the error of each derivative, relative to the largest absolute derivative of both gradients."""
    # Pages about files alone have no gradients, and load no torch.
    from .gradients import find_greatest

    scale = max(find_greatest(mine), find_greatest(true)) or 1.0
    return ((mine - true).abs() / scale).cpu().double().numpy()


def draw_heat_map(errors: np.ndarray) -> str:
    """Draw relative errors as a picture, `data:image/png;base64,...`: a strip for one dim, rows for three.

    Elements that are not finite are gray.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sheet = _sheet(errors)
    height = min(max(_INCHES * sheet.shape[0] / sheet.shape[1], 0.35), _INCHES)
    figure = Figure(figsize=(_INCHES + 1.1, height + 0.4), dpi=120, layout="constrained")
    _draw(figure, sheet)
    out = io.BytesIO()
    FigureCanvasAgg(figure).print_png(out)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _draw(figure: Any, sheet: np.ndarray) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    axes.set_facecolor("0.6")
    shown = np.ma.masked_invalid(sheet).clip(_LEAST, _GREATEST)
    picture = axes.imshow(shown, aspect="auto", cmap="Reds", norm=LogNorm(_LEAST, _GREATEST), interpolation="nearest")
    axes.tick_params(labelsize=7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if sheet.shape[0] == 1:
        axes.set_yticks([])
    bar = figure.colorbar(picture, ax=axes, ticks=[_LEAST, 1e-5, _GREATEST])
    bar.ax.tick_params(labelsize=7)
    bar.ax.minorticks_off()


def _sheet(values: np.ndarray) -> np.ndarray:
    """Reshape errors to two dims of at most 512 cells each. A cell for several elements has their maximum."""
    flat = values.reshape(1, -1) if values.ndim < 2 else values.reshape(-1, values.shape[-1])
    rows, columns = (-(-size // _SIDE) for size in flat.shape)
    padded = np.pad(flat, [(0, -flat.shape[0] % rows), (0, -flat.shape[1] % columns)])
    return padded.reshape(padded.shape[0] // rows, rows, -1, columns).max(axis=(1, 3))


_STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2328; --faint: #6e7781; --paper: #ffffff; --panel: #f6f8fa; --line: #d0d7de;
  --error: #b42318; --warning: #9a6700; --info: #0969da; --good: #1a7f37;
  --keyword: #a0326e; --string: #0a5c36; --number: #7a3e9d; --name: #0550ae; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6edf3; --faint: #8d96a0; --paper: #0d1117; --panel: #161b22; --line: #30363d;
  --error: #ff7b72; --warning: #e3b341; --info: #79c0ff; --good: #56d364;
  --keyword: #ff9bce; --string: #a5d6a7; --number: #d2a8ff; --name: #79c0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 2rem 1.25rem 4rem; overflow-wrap: anywhere;
  color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h1 code { font-size: inherit; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .6rem; overflow-wrap: anywhere; }
a { color: inherit; }
code, pre, .mono { font-size: 13px;
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.faint { color: var(--faint); }
.verdict { font-weight: 600; }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--error); }
.list { border-collapse: collapse; width: 100%; margin-top: 1.25rem; }
.list td { padding: .3rem .75rem .3rem 0; border-top: 1px solid var(--line); vertical-align: top; }
.list td:nth-child(-n+2) { white-space: nowrap; }
.list td:nth-child(3) { width: 30%; min-width: 8rem; overflow-wrap: anywhere; }
.error > b, b.error { color: var(--error); } .warning > b, b.warning { color: var(--warning); }
.info > b, b.info { color: var(--info); }
.source { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto;
  background: var(--panel); padding: .4rem 0; }
.row { display: grid; grid-template-columns: 4rem 1fr; min-width: max-content; }
.row > .number { text-align: right; padding-right: 1rem; color: var(--faint); user-select: none; }
.row > code { white-space: pre; padding-right: 1rem; }
.row.marked { background: color-mix(in srgb, var(--mark) 12%, transparent); }
.gap { color: var(--faint); padding: .1rem 0 .1rem 2.1rem; user-select: none; }
.finding { margin: .25rem 1rem .5rem 4rem; padding: .45rem .8rem; border-left: 3px solid var(--mark);
  background: var(--paper); border-radius: 0 6px 6px 0; max-width: 52rem; position: sticky; left: 4rem; }
.finding p { margin: 0; } .finding pre { margin: .1rem 0 0; white-space: pre-wrap; }
.finding p.label { margin-top: .5rem; color: var(--good); font-weight: 600; }
dt { margin-top: .6rem; } dd { margin: 0; }
.caret { font-weight: 700; color: var(--mark); }
.error { --mark: var(--error); } .warning { --mark: var(--warning); } .info { --mark: var(--info); }
:target { outline: 2px solid var(--mark, var(--info)); outline-offset: 2px; }
pre.words { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; padding: .7rem 1rem; }
.maps { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; flex: 0 1 31rem; } figcaption { font-size: 13px; margin-bottom: .3rem; }
figure img { max-width: 100%; border-radius: 6px; border: 1px solid var(--line); background: white; display: block; }
.k, .kn, .kc, .ow { color: var(--keyword); } .s, .s1, .s2, .sd { color: var(--string); }
.mi, .mf { color: var(--number); } .nf, .nd { color: var(--name); } .c1 { color: var(--faint); font-style: italic; }
@media (max-width: 40rem) {
  .list tr { display: flex; flex-wrap: wrap; border-top: 1px solid var(--line); padding: .3rem 0; }
  .list td { border: 0; padding-block: 0; } .list td:nth-child(3) { flex: 1; } .list td:last-child { width: 100%; }
  .row { grid-template-columns: 2.6rem 1fr; } .row > .number { padding-right: .6rem; }
  .finding { margin: .25rem .4rem .5rem; left: .4rem; padding: .45rem .6rem; } }
"""
