"""A figure of a scan's gradient: its growth and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..._extras import require_packages
from ._result import GROWTH, ScanCheck

_COLOURS = {
    "right": "tab:green",
    "at a kink": "tab:olive",
    "wrong": "tab:red",
    "unclear": "0.6",
    "not finite": "tab:red",
}


def plot(check: ScanCheck, path: str | Path | None = None) -> Any:
    """The figure. It is written to `path` where one is given."""
    require_packages("the figure of a scan", "apps", "matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = check.sizes
    left.semilogy(range(len(sizes)), sizes.clamp(min=1e-300).tolist(), lw=1.2)
    left.set(title="gradient by the state", xlabel="step", ylabel="length")
    if check.explodes_at is not None:
        left.axhline(GROWTH * check.reference, color="tab:red", lw=0.8, ls=":")
        left.axvline(check.explodes_at, color="tab:red", lw=0.8, label=f"a million times at step {check.explodes_at}")
        left.legend(fontsize=8)
    for verdict, colour in _COLOURS.items():
        some = [one for one in check.horizons if one.verdict == verdict]
        if some:
            errors = [max(one.relative_error, 1e-16) for one in some]
            right.loglog([one.steps for one in some], errors, "o", color=colour, label=verdict)
    right.set(title="gradient and differences", xlabel="steps", ylabel="relative error")
    right.legend(fontsize=8)
    if path is not None:
        figure.savefig(path)
    return figure
