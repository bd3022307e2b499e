"""Heat: pictures of where a gradient is wrong, as PNG in text, for pages that stand alone."""

from __future__ import annotations

import base64
import io

import numpy as np

_SIDE = 512  # of more cells a side several share one: a picture shows no more
_INCHES = 3.4


def heat_map(errors: np.ndarray) -> str:
    """A picture of an array's absolute values, `data:image/png;base64,...`: a strip for one dim, rows for three.

    Cells that are not finite are grey.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    sheet = _sheet(np.abs(errors).astype(np.float64))
    height = min(max(_INCHES * sheet.shape[0] / sheet.shape[1], 0.5), _INCHES)
    figure = Figure(figsize=(_INCHES + 1.1, height + 0.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor("0.6")
    finite = sheet[np.isfinite(sheet)]
    top = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    shown = axes.imshow(np.ma.masked_invalid(sheet), aspect="auto", cmap="Reds", vmin=0, vmax=top)
    axes.tick_params(labelsize=7)
    if sheet.shape[0] == 1:
        axes.set_yticks([])
    numbers = ScalarFormatter()
    numbers.set_powerlimits((-2, 3))
    figure.colorbar(shown, ax=axes, format=numbers).ax.tick_params(labelsize=7)
    out = io.BytesIO()
    FigureCanvasAgg(figure).print_png(out)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _sheet(values: np.ndarray) -> np.ndarray:
    """Two dims, not too many cells; the largest of those that share one stays to be seen."""
    flat = values.reshape(1, -1) if values.ndim < 2 else values.reshape(-1, values.shape[-1])
    rows, columns = (-(-size // _SIDE) for size in flat.shape)
    padded = np.pad(flat, [(0, -flat.shape[0] % rows), (0, -flat.shape[1] % columns)])
    return padded.reshape(padded.shape[0] // rows, rows, -1, columns).max(axis=(1, 3))
