"""Heat maps: pictures of a gradient's errors, as PNG in text, for self-contained pages.

Errors are relative to the largest derivative, and all pictures have the same logarithmic scale: rounding errors look
pale in all of them, a wrong element dark.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch

_SIDE = 512  # cells on a side at most; of more elements, several share a cell
_INCHES = 3.4
_LEAST, _GREATEST = 1e-10, 1.0


def compute_relative_errors(mine: torch.Tensor, true: torch.Tensor) -> np.ndarray:
    """Return the error of each derivative, relative to the largest absolute derivative of both gradients."""
    both = torch.cat([mine.flatten(), true.flatten()]).abs()
    finite = both[both.isfinite()]
    scale = finite.max().item() if finite.numel() else 0.0
    return ((mine - true).abs() / (scale or 1.0)).cpu().double().numpy()


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
