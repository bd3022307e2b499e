"""`export_splats`: gsplat's function of this name, for scripts that call it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import Tensor

from ._checks import require_choice
from ._splat_files import check_splats, encode_ply, write_bytes

Format = Literal["ply"]


def export_splats(
    means: Tensor,
    scales: Tensor,
    quats: Tensor,
    opacities: Tensor,
    sh0: Tensor,
    shN: Tensor,
    format: Format = "ply",  # noqa: A002  # gsplat's name
    save_to: str | Path | None = None,
) -> bytes:
    """Return Gaussians as the bytes of a PLY file, as gsplat's function of this name.

    Gaussians with values that are not finite are left out; `save_ply` raises an error for them. Unlike gsplat, and as
    `save_ply`, normals are written. gsplat's compressed formats are not supported.

    Args:
        means: (N, 3).
        scales: (N, 3), logarithms.
        quats: (N, 4), w x y z.
        opacities: (N), logits.
        sh0: (N, 1, 3).
        shN: (N, K, 3).
        format: "ply".
        save_to: path of a file to write as well.

    Returns:
        The file's bytes.

    Raises:
        ArgumentError: the format is not "ply".
        ShapeError: the tensors do not fit each other.
        InputError: the file cannot be written.

    Example:
        >>> import math
        >>> means = torch.tensor([[0.0, 1.0, 2.0], [math.nan, 0.0, 0.0]])
        >>> others = (torch.zeros(2, 3), torch.ones(2, 4), torch.zeros(2), torch.zeros(2, 1, 3), torch.zeros(2, 0, 3))
        >>> whole = ts.render.gaussians.export_splats(means, *others, save_to="splats.ply")
        >>> ts.render.gaussians.load_ply("splats.ply")["means"]
        tensor([[0., 1., 2.]])
    """
    require_choice("export_splats", "format", format, Format)
    given = {"means": means, "scales": scales, "quats": quats, "opacities": opacities, "sh0": sh0, "shN": shN}
    held = check_splats("export_splats", given, must_be_finite=False)
    kept = means.new_ones(len(means)).bool().cpu()
    for value in held.values():
        kept &= value.isfinite().flatten(1).all(1) if value.ndim > 1 else value.isfinite()
    whole = encode_ply({name: value[kept] for name, value in held.items()})
    if save_to is not None:
        write_bytes(Path(save_to), whole)
    return whole
