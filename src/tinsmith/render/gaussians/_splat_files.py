"""Files of Gaussians: PLY, as viewers open it, and safetensors. Numbers are written unchanged.

PLY has the layout of the first implementation of Gaussian splatting, which viewers and other trainers read: one vertex
per Gaussian, all properties float32, little-endian,

    x y z  nx ny nz  f_dc_0..2  f_rest_0..3K-1  opacity  scale_0..2  rot_0..3

with opacities as logits, scales as logarithms, rotations w x y z, and f_rest channel by channel: all K coefficients of
red, then green, then blue. The normals are 0; no program reads them.

`export_splats` is gsplat's function of this name, for scripts that call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..._errors import ArgumentError, InputError, ShapeError, refusal
from ..._extras import require_packages
from ..._untrusted import MakeError, open_untrusted, read_safetensors
from .._ply import read_vertices
from ._checks import require_choice

_SHAPES: dict[str, tuple[int | str, ...]] = {
    "means": (3,),
    "scales": (3,),
    "quats": (4,),
    "opacities": (),
    "sh0": (1, 3),
    "shN": ("K", 3),
}
"""The axes of each tensor after N; K is 0, 3, 8, 15 or 24."""
COEFFICIENTS = (0, 3, 8, 15, 24)
"""The number K of coefficients for each degree of the harmonics."""


def save_ply(path: str | Path, splats: Mapping[str, Tensor]) -> None:
    """Write Gaussians to a PLY file that other viewers and trainers read.

    Args:
        path: the file, which is replaced.
        splats: "means" (N, 3), "scales" (N, 3) logarithms, "quats" (N, 4) w x y z, "opacities" (N) logits, "sh0"
            (N, 1, 3) and "shN" (N, K, 3), K = 0, 3, 8, 15 or 24, coefficients of spherical harmonics; "shN" may be
            left out. Stored in float32. Values that are not finite raise an error.

    Raises:
        ArgumentError: a tensor is missing or unknown, or not finite.
        ShapeError: they do not fit.
        InputError: the file cannot be written.

    Example:
        >>> gaussians = ts.render.gaussians
        >>> splats = {"means": torch.rand(5, 3), "scales": torch.rand(5, 3), "quats": torch.rand(5, 4)}
        >>> splats |= {"opacities": torch.rand(5), "sh0": torch.rand(5, 1, 3), "shN": torch.rand(5, 15, 3)}
        >>> gaussians.save_ply("splats.ply", splats)
        >>> read = gaussians.load_ply("splats.ply")
        >>> all(torch.equal(read[name], splats[name]) for name in splats)
        True
    """
    write_bytes(Path(path), encode_ply(check_splats("save_ply", splats)))


def encode_ply(held: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a PLY file with these Gaussians, which `check_splats` returned."""
    count, rest = len(held["means"]), held["shN"].shape[1]
    columns = [
        held["means"],
        held["means"].new_zeros(count, 3),
        held["sh0"][:, 0],
        held["shN"].mT.reshape(count, 3 * rest),
        held["opacities"][:, None],
        held["scales"],
        held["quats"],
    ]
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    lines += [f"property float {name}" for name in _list_property_names(rest)]
    header = "\n".join([*lines, "end_header\n"]).encode("ascii")
    body = torch.cat(columns, 1).numpy().astype("<f4").tobytes()
    return header + body


def load_ply(path: str | Path) -> dict[str, Tensor]:
    """Read Gaussians from a PLY with the layout of `save_ply`; other properties and elements are ignored.

    Args:
        path: a PLY file: binary, of either byte order, or ASCII.

    Returns:
        Tensors as for `save_ply`, float32, on the CPU; "shN" has K = 0 where the file has no f_rest.

    Raises:
        InputError: the file is missing, broken, of another kind, lacks a property, or has values that are not finite.

    Example:
        >>> ts.render.gaussians.load_ply("none.ply")
        Traceback (most recent call last):
        tinsmith.InputError: the splats cannot be read
          file     none.ply
          because  No such file or directory
    """
    path = Path(path)
    make_error = partial(make_read_error, path)
    with open_untrusted(path, make_error) as file:
        vertices = read_vertices(file, make_error)
    names = vertices.dtype.names or ()
    rest = sum(name.startswith("f_rest_") for name in names)
    if rest % 3 or rest // 3 not in COEFFICIENTS:
        raise make_read_error(path, f"{rest} properties f_rest_*: expected 0, 9, 24, 45 or 72")
    wanted = _list_property_names(rest // 3)
    missing = [name for name in wanted if name not in names and not name.startswith("n")]
    if missing:
        raise make_read_error(path, f"there is no property {missing[0]}")

    def columns(*names: str) -> Tensor:
        with np.errstate(over="ignore"):
            # A double out of float32's range becomes infinite, and is refused below.
            values = np.stack([vertices[name].astype(np.float32) for name in names], 1) if names else None
        return torch.zeros(len(vertices), 0) if values is None else torch.from_numpy(values)

    shN = columns(*(name for name in wanted if name.startswith("f_rest_")))
    splats = {
        "means": columns("x", "y", "z"),
        "scales": columns("scale_0", "scale_1", "scale_2"),
        "quats": columns("rot_0", "rot_1", "rot_2", "rot_3"),
        "opacities": columns("opacity")[:, 0],
        "sh0": columns("f_dc_0", "f_dc_1", "f_dc_2")[:, None],
        "shN": shN.view(len(vertices), 3, rest // 3).mT.contiguous(),
    }
    _check_loaded("load_ply", splats, make_error)
    return splats


def save_splats(path: str | Path, splats: Mapping[str, Tensor]) -> None:
    """Write Gaussians to a safetensors file, which is exact for any dtype and faster to read than PLY.

    Args:
        path: the file, which is replaced.
        splats: as for `save_ply`, of any floating dtype.

    Raises:
        ArgumentError, ShapeError, InputError: the same errors as `save_ply`.

    Example:
        >>> gaussians = ts.render.gaussians
        >>> splats = {"means": torch.rand(5, 3), "scales": torch.rand(5, 3), "quats": torch.rand(5, 4)}
        >>> splats |= {"opacities": torch.rand(5), "sh0": torch.rand(5, 1, 3)}
        >>> gaussians.save_splats("splats.safetensors", splats)
        >>> {name: tuple(one.shape) for name, one in gaussians.load_splats("splats.safetensors").items()}["sh0"]
        (5, 1, 3)
    """
    require_packages("save_splats", "apps", "safetensors")
    from safetensors.torch import save  # not needed to import tinsmith; save_file makes private files

    check_splats("save_splats", splats)
    write_bytes(Path(path), save({name: value.detach().cpu().contiguous() for name, value in splats.items()}))


def load_splats(path: str | Path) -> dict[str, Tensor]:
    """Read Gaussians from a safetensors file.

    Args:
        path: a file that `save_splats` wrote.

    Returns:
        The tensors that were saved, on the CPU.

    Raises:
        InputError: the file is missing or broken, or holds no Gaussians.

    Example:
        >>> splats = {name: torch.rand(5, size) for name, size in (("means", 3), ("scales", 3), ("quats", 4))}
        >>> splats |= {"opacities": torch.rand(5), "sh0": torch.rand(5, 1, 3)}
        >>> ts.render.gaussians.save_splats("splats.safetensors", splats)
        >>> read = ts.render.gaussians.load_splats("splats.safetensors")
        >>> all(torch.equal(read[name], splats[name]) for name in splats)
        True
    """
    require_packages("load_splats", "apps", "safetensors")
    make_error = partial(make_read_error, Path(path))
    _, splats = read_safetensors(path, make_error)
    _check_loaded("load_splats", splats, make_error)
    return splats


def _check_loaded(function: str, splats: Mapping[str, Tensor], make_error: MakeError) -> None:
    try:
        check_splats(function, splats)
    except (ArgumentError, ShapeError) as cause:
        raise make_error(str(cause)) from cause


def write_bytes(path: Path, whole: bytes) -> None:
    try:
        path.write_bytes(whole)
    except OSError as cause:
        raise _make_error("the splats cannot be written", path, cause.strerror or str(cause)) from cause


def _list_property_names(rest: int) -> list[str]:
    return [
        *("x", "y", "z", "nx", "ny", "nz"),
        *(f"f_dc_{i}" for i in range(3)),
        *(f"f_rest_{i}" for i in range(3 * rest)),
        "opacity",
        *(f"scale_{i}" for i in range(3)),
        *(f"rot_{i}" for i in range(4)),
    ]


def check_splats(function: str, splats: Mapping[str, Tensor], must_be_finite: bool = True) -> dict[str, Tensor]:
    """Check the tensors of Gaussians. Return all of them, with "shN", as float32 on the CPU.

    Raises:
        ArgumentError, ShapeError: a tensor is missing, unknown, of another shape, or not finite.
    """
    missing = [name for name in _SHAPES if name not in splats and name != "shN"]
    unknown = [name for name in splats if name not in _SHAPES]
    if missing or unknown:
        rows = [("missing", ", ".join(missing) or "none"), ("unknown", ", ".join(unknown) or "none")]
        remedy = "Add the missing, remove the unknown."
        raise ArgumentError(refusal(f"`splats` of `{function}` has missing or unknown names", rows, remedy))
    if not splats["means"].ndim:
        raise ShapeError(refusal(f"`means` of `{function}` has the wrong shape", [("means", "[N, 3] = ()")]))
    count = len(splats["means"])
    held = {name: value.detach().to("cpu", torch.float32) for name, value in splats.items()}
    held.setdefault("shN", torch.zeros(count, 0, 3))
    for name, axes in _SHAPES.items():
        shape = tuple(held[name].shape)
        expected = (count, *(shape[1] if axis == "K" and len(shape) == 3 else axis for axis in axes))
        if shape != expected or (name == "shN" and shape[1] not in COEFFICIENTS):
            words = ", ".join(map(str, ("N", *axes)))
            rows = [(name, f"[{words}] = {shape}", f"N is {count}" + ", K is 0, 3, 8, 15 or 24" * (name == "shN"))]
            raise ShapeError(refusal(f"`{name}` of `{function}` has the wrong shape", rows))
        if must_be_finite and not held[name].isfinite().all():
            bad = int((~held[name].isfinite()).sum())
            remedy = "Remove these Gaussians first: viewers do not expect them."
            raise ArgumentError(refusal(f"`{name}` of `{function}` is not finite", [("values", f"{bad}")], remedy))
    return held


def make_read_error(path: Path, reason: str) -> InputError:
    return _make_error("the splats cannot be read", path, reason)


def _make_error(headline: str, path: Path, reason: str) -> InputError:
    return InputError(refusal(headline, [("file", str(path)), ("because", reason)]))


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
