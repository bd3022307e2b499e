"""The page of the command line: every command with its arguments and options, read from its signature."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo

from tinsmith.cli import app

from .blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"
# A default in the words of the help stands in the column of defaults.
_TOLD_DEFAULT = re.compile(r"\s*(?:Default|Left out): ([^.]+)\.?")
_PAGES = {
    "adjoint": ("gradients from the kernel's source", "../guide/adjoint.md"),
    "check": ("checking kernels", "check.md"),
    "doctor": ("engines", "engines.md"),
    "fit-image": ("a photograph, fitted with Gaussians", "../how-to/fit-image.md"),
    "fit-scene": ("a radiance field of pictures", "../how-to/fit-scene.md"),
    "fit-splats": ("Gaussians of pictures", "../how-to/fit-splats.md"),
    "learn-image": ("learn-image", "../how-to/learn-image.md"),
    "rule": ("lint and its rules", "lint/index.md"),
    "simulate": ("simulations that learn", "../how-to/simulate.md"),
}


def pages() -> dict[Path, str]:
    """Return the page's text, by its path."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return {PAGE: f"{head}{BEGIN}\n\n{commands()}\n\n{END}{rest.partition(END)[2]}"}


def commands() -> str:
    """Return the reference of all commands in Markdown."""
    return "\n\n".join(_command(one.name, one.callback) for one in app.registered_commands)


def _command(name: str, callback: Any) -> str:
    parameters = _parameters(callback)
    arguments = [_placeholder(key, info, default) for key, info, _, default in parameters if _is_argument(info)]
    flags = [_flags(key, info) for key, info, _, _ in parameters if not _is_argument(info)]
    usage = " ".join([f"tinsmith {name}", *arguments, *["[OPTIONS]"] * bool(flags)])
    parts = [f"## tinsmith {name}", _mark_options(inspect.cleandoc(callback.__doc__)), f"```text\n{usage}\n```"]
    firsts = [f"`{one}`" for one in arguments] + flags
    rows = [_row(first, *rest) for first, (_, *rest) in zip(firsts, parameters, strict=True)]
    if rows:
        parts.append("\n".join(["| name | meaning | default |", "|---|---|---|", *rows]))
    title, path = _PAGES.get(name, ("", ""))
    if path and (PAGE.parent / path).exists():
        parts.append(f"How it is used: [{title}]({path}).")
    return "\n\n".join(parts)


def _mark_options(text: str) -> str:
    """Mark options such as `--strict` in a text as code, so that a browser does not break lines inside them."""
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", text)


def _parameters(callback: Any) -> list[tuple[str, Any, Any, Any]]:
    """Return the parameters of a command, arguments first: name, typer's info, type, and default."""
    hints = get_type_hints(callback, include_extras=True)
    rows = []
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, info = get_args(hints[name])
        rows.append((name, info, kind, parameter.default))
    return sorted(rows, key=lambda one: not _is_argument(one[1]))


def _is_argument(info: Any) -> bool:
    return isinstance(info, ArgumentInfo)


def _placeholder(name: str, info: Any, default: Any) -> str:
    word = info.metavar or name.upper()
    return word if default is inspect.Parameter.empty else f"[{word}]"


def _flags(name: str, info: Any) -> str:
    first = [info.default] if isinstance(info.default, str) else []  # typer's first argument is the default
    flags = [*first, *(info.param_decls or ())] or [f"--{name.replace('_', '-')}"]
    return ", ".join(f"`{flag}`" for flag in flags) + (f" {info.metavar}" if info.metavar else "")


def _row(first: str, info: Any, kind: Any, default: Any) -> str:
    words = " ".join(info.help.split()).replace("|", r"\|")
    if isinstance(kind, type) and issubclass(kind, Enum):
        words += " One of " + ", ".join(f"`{one.value}`" for one in kind) + "."
    match = _TOLD_DEFAULT.search(words)
    if match:
        return f"| {first} | {_TOLD_DEFAULT.sub('', words)} | {match[1]} |"
    return f"| {first} | {words} | {_default_text(default)} |"


def _default_text(default: Any) -> str:
    """Return the text of a parameter's default for a cell, which is never blank."""
    if default is inspect.Parameter.empty:
        return "required"
    if default is None or default is False:
        return "off" if default is False else "none"
    return f"`{default.value if isinstance(default, Enum) else default}`"
