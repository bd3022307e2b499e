"""`tinsmith check`: what is wrong with the kernels in Python files, for people and for CI."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from .._errors import InputError, count_noun, refusal
from ._check_files import python_files
from ._check_files import watch as watch_files
from ._check_settings import CheckSettings, find_settings_files, read_settings
from ._import_file import hide_engine_banners, keep_import_path, keep_stdout_clean
from ._training import leaving_on_interrupt

if TYPE_CHECKING:
    from ..doctor import Report
    from ..linter import Finding

_FOUND, _COULD_NOT_RUN = 1, 2
_FILES_PER_COLLECTION = 512
"""Files that are read between two collections of garbage: about 1.5 GB where most of them have kernels."""

_MOST_FINDINGS = 100
"""Findings beyond which a summary is printed."""


class OutputFormat(str, Enum):
    """How findings are written."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    html = "html"


class Least(str, Enum):
    """Severities: findings of the chosen one and above are reported."""

    error = "error"
    warning = "warning"
    info = "info"


def check(
    places: Annotated[
        list[Path], typer.Argument(metavar="FILE_OR_FOLDER...", help="Python files, or folders of them.")
    ],
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULES", help="Report only these rules: ids or prefixes of ids, as `TS105,TS3`. Default: ALL."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULES", help="Leave out these rules: ids or prefixes of ids.")
    ] = None,
    output_format: Annotated[OutputFormat, typer.Option(help="The output format of the findings.")] = OutputFormat.text,
    fix: Annotated[
        bool, typer.Option("--fix", help="Correct the findings whose fix is certain, then report the others.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what --fix would change, and write nothing. Exit code 1: something.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Print the number of findings of each rule instead of the findings.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Check again each time that a file changes, until Ctrl-C.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The file to write to; else it is printed.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Import the files and run the examples of their ops too.")] = False,
    severity: Annotated[Least, typer.Option(help="Ignore findings that are less severe.")] = Least.info,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    summary: Annotated[
        bool | None,
        typer.Option(
            "--summary/--no-summary",
            help="Print each cause of warnings and hints once. Default: where there are more than 100 findings.",
        ),
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Leave out the findings that this file has.")] = None,
    written: Annotated[
        Path | None, typer.Option("--write-baseline", help="Write the findings to this file, a baseline.")
    ] = None,
) -> None:
    """Find what is wrong with the kernels in Python files; they are not run, unless --run is given.

    Settings in the table `tool.tinsmith.check` of pyproject.toml are the defaults of --select, --ignore and --baseline.

    Exit code 0: no errors. 1: errors, or warnings with --strict. 2: something could not be checked.
    """
    if baseline is not None and written is not None:
        rows = [("--baseline", str(baseline)), ("--write-baseline", str(written))]
        raise InputError(refusal("a baseline is read or written, not both", rows, "Leave out one of them."))
    if statistics and output_format not in (OutputFormat.text, OutputFormat.json):
        rows = [("--output-format", output_format.value)]
        raise InputError(refusal("--statistics is printed as text or JSON", rows, "Choose one of them."))
    settings = read_settings(places)
    is_wanted = _select_findings(settings, select, ignore, severity)
    files = python_files(places, settings.excludes)
    if not files:
        typer.echo(f"No file is checked: `exclude` in {settings.file} leaves out all of them.", err=True)
        return
    if watch:
        watch_files(lambda: _list_watched(places))
        return
    if diff:
        raise typer.Exit(_FOUND if _print_diff(files, is_wanted) else 0)
    if fix:
        _fix_files(files, is_wanted)
    report = _check_files(files, run)
    known = settings.baseline if baseline is None else baseline
    if known is not None and written is None:
        from ..doctor import apply_baseline

        report = apply_baseline(report, known, files)
    report = report.keep(is_wanted)
    if written is not None:
        from ..doctor import write_baseline
        from ..linter import NOT_LOOKED_AT

        count = write_baseline(report, written)
        typer.echo(f"{count_noun(count, 'finding')} written to {written}. From now on: --baseline {written}")
        if not report.was_complete:
            lost = [one for one in report.of("error") if one.rule in NOT_LOOKED_AT]
            typer.echo("\n".join(map(str, lost)), err=True)
            raise typer.Exit(_COULD_NOT_RUN)
        return
    is_summary = len(report.findings) > _MOST_FINDINGS if summary is None else summary
    _write(report, output_format, out, is_summary=is_summary, statistics=statistics)
    if not report.was_complete:
        raise typer.Exit(_COULD_NOT_RUN)
    if not report.ok or (strict and report.of("warning")):
        raise typer.Exit(_FOUND)


def _list_watched(places: list[Path]) -> list[Path]:
    """Return the files that a check depends on: those that it checks, and the project's settings."""
    try:
        settings = read_settings(places)
        files = python_files(places, settings.excludes)
    except InputError:  # they are being edited: the next check says what is wrong
        return find_settings_files(places)
    extra = [one for one in (settings.baseline,) if one is not None]
    return [*files, *find_settings_files(places), *extra]


def _fix_files(files: list[Path], is_wanted: Callable[[Finding], bool]) -> None:
    """Fix the findings of files that can be, and say how many on standard error."""
    with leaving_on_interrupt():
        from ._check_files import find_fixes
    counts: list[int] = []
    with _pause_collection():
        for one in find_fixes(files, is_wanted):
            one.write()
            counts.append(one.fixed)
    fixed, places = sum(counts), len(counts)
    words = f"Fixed {count_noun(fixed, 'finding')} in {count_noun(places, 'file')}."
    typer.echo(words if fixed else "No finding can be fixed.", err=True)


def _print_diff(files: list[Path], is_wanted: Callable[[Finding], bool]) -> bool:
    """Print what would be fixed, and return whether there is anything."""
    with leaving_on_interrupt():
        from ._check_files import find_fixes
    count = 0
    with _pause_collection():
        for one in find_fixes(files, is_wanted):
            typer.echo(one.diff(), nl=False)
            count += one.fixed
    words = f"{count_noun(count, 'finding')} would be fixed."
    typer.echo(words if count else "No finding can be fixed.", err=True)
    return count > 0


def _select_findings(
    settings: CheckSettings, select: list[str] | None, ignore: list[str] | None, severity: Least
) -> Callable[[Finding], bool]:
    """Return a function that tells which findings the options, or else the settings, select.

    Raises:
        InputError: a prefix matches no rule.
    """
    from ..linter import SEVERITIES, RuleSelection, parse_prefixes

    file = f" of {settings.file}"
    selected = settings.select if select is None else select
    selected = ["ALL"] if selected is None else selected
    ignored = settings.ignore if ignore is None else ignore
    chosen = RuleSelection(
        parse_prefixes(selected, "--select" if select is not None else f"`select`{file}", are_ignored=False),
        parse_prefixes(ignored, "--ignore" if ignore is not None else f"`ignore`{file}", are_ignored=True),
    )
    for rules in settings.per_file_ignores.values():
        parse_prefixes(rules, f"`per-file-ignores`{file}", are_ignored=True)

    @cache
    def select_rules(path: str) -> RuleSelection:
        ignored_here = parse_prefixes(settings.find_ignored_rules(Path(path)), "", are_ignored=True)
        return RuleSelection(ignore=ignored_here)

    severities = SEVERITIES[: SEVERITIES.index(severity.value) + 1]
    return lambda finding: (
        finding.severity in severities
        and chosen.includes(finding.rule)
        and select_rules(finding.path).includes(finding.rule)
    )


def _check_files(files: list[Path], run: bool) -> Report:
    with leaving_on_interrupt():
        from ..doctor import check_file, join_reports
    with _pause_collection():
        reports: list[Report] = []
        for count, file in enumerate(files, 1):
            reports.append(check_file(file))
            if count % _FILES_PER_COLLECTION == 0:
                gc.collect()
    if run:  # a run sees which ops have examples, where the text only lets one guess
        readable = [file for file, report in zip(files, reports, strict=True) if report.was_complete]
        reports = [replace(report, without_examples=()) for report in reports] + _run(readable)
    name = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    return join_reports(name, reports)


@contextmanager
def _pause_collection() -> Generator[None]:
    """Pause Python's garbage collector, which would go through all syntax trees each time that new ones are built."""
    was_enabled = gc.isenabled()
    gc.disable()
    # At its end Python would look for garbage once more, which takes as long as a fifth of the check.
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(files: list[Path]) -> list[Report]:
    """Run the examples of files and return their reports. What files and engines print goes to standard error."""
    from ._examples_run import run_examples

    hide_engine_banners()
    seen: set[int] = set()
    with ExitStack() as stack:
        stack.enter_context(keep_stdout_clean())
        stack.enter_context(keep_import_path())
        return [run_examples(file, seen) for file in files]


def _write(report: Report, form: OutputFormat, out: Path | None, *, is_summary: bool, statistics: bool) -> None:
    console = Console()
    if form is OutputFormat.text and out is None and console.is_terminal and not statistics:
        from ..doctor import render_report

        console.print(*render_report(report, console.width, is_summary=is_summary), sep="\n")
        return
    text = _format_statistics(report, form) if statistics else _text(report, form, is_summary=is_summary)
    # File names need not be valid Unicode. In JSON, this is the escape that stands for the same name.
    data = text.encode("utf-8", "backslashreplace")
    if out is None:
        # Formats for programs are UTF-8 whatever the terminal's encoding is.
        typer.echo(data.decode() if form is OutputFormat.text else data, nl=False)
        return
    try:
        out.write_bytes(data)
    except OSError as cause:
        rows = [("--out", str(out)), (type(cause).__name__, cause.strerror or str(cause))]
        remedy = "Name a file in a folder that exists."
        raise InputError(refusal("the report cannot be written", rows, remedy)) from cause
    typer.echo(f"{report.summary}. Written: {out}")


def _format_statistics(report: Report, form: OutputFormat) -> str:
    from ..doctor import format_statistics, statistics_as_json

    return statistics_as_json(report) if form is OutputFormat.json else format_statistics(report)


def _text(report: Report, form: OutputFormat, *, is_summary: bool) -> str:
    from ..doctor import as_github, as_json, as_sarif, plain

    records = {OutputFormat.json: as_json, OutputFormat.sarif: as_sarif, OutputFormat.github: as_github}
    if form in records:
        return records[form](report, Path.cwd())
    return report.html() if form is OutputFormat.html else f"{plain(report, is_summary=is_summary)}\n"
