"""The badges of the README, drawn from pyproject.toml: docs/assets/badges/*.svg.

They are files of the repository, since badges of a service need a public address, which the project does not have.
"""

from __future__ import annotations

import re
from pathlib import Path

from .blocks import ROOT

FOLDER = ROOT / "docs" / "assets" / "badges"
_CHARACTER = 6.4  # pixels, of the 11 pixels high font
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {message}">
  <clipPath id="round"><rect width="{width}" height="20" rx="3"/></clipPath>
  <g clip-path="url(#round)">
    <rect width="{split}" height="20" fill="#4b5661"/>
    <rect x="{split}" width="{rest}" height="20" fill="#b83c14"/>
  </g>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
    <text x="{left}" y="14" textLength="{label_length}">{label}</text>
    <text x="{right}" y="14" textLength="{message_length}">{message}</text>
  </g>
</svg>
"""


def badges() -> dict[Path, str]:
    """Return the SVG of each badge, by its path."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    minors = [int(minor) for minor in re.findall(r"Python :: 3\.(\d+)\"", project)]
    license_name = re.findall(r'^license = "(.*)"$', project, re.MULTILINE)[0]
    messages = {"python": f"3.{min(minors)} to 3.{max(minors)}", "license": license_name}
    messages |= {name: _versions(project, name) for name in ("torch", "taichi", "quadrants")}
    return {FOLDER / f"{label}.svg": badge(label, message) for label, message in messages.items()}


def badge(label: str, message: str) -> str:
    """Return the SVG of a badge that shows a message beside a label."""
    label_length, message_length = round(_CHARACTER * len(label)), round(_CHARACTER * len(message))
    split, rest = label_length + 12, message_length + 12
    return _SVG.format(
        label=label, message=message, width=split + rest, split=split, rest=rest, left=split / 2,
        right=split + rest / 2, label_length=label_length, message_length=message_length,
    )  # fmt: skip


def write() -> None:
    """Write all badges."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in badges().items():
        path.write_text(text, encoding="utf-8")


def _versions(project: str, package: str) -> str:
    """Return the minor versions of a dependency that pyproject.toml admits: `>=2.6,<2.16` is "2.6 to 2.15"."""
    major, oldest, after = re.findall(rf'"{package}>=(\d+)\.(\d+)[\d.]*,<\d+\.(\d+)', project)[0]
    newest = int(after) - 1
    return f"{major}.{oldest}" if int(oldest) == newest else f"{major}.{oldest} to {major}.{newest}"
