"""Differentiable direct volume rendering: colors, opacities and depths of rays through a box of values.

The gradient has a handwritten kernel. Second derivatives, and the gradients of the box and of the offsets, come from
the generated derivative of the forward op.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from .. import kernels
from .._cache import cache_results
from .._errors import ArgumentError, DeviceError, DtypeError, ShapeError, refusal
from ..operation import Op, op
from ..reference import Rendered, Shading
from ..tracing import suspend_transforms
from ._course import Jitter, draw_offsets
from ._ops import cast_to_single, get_op, register_maker
from ._rule import Asked, Rule, differentiate_value, run

_WORKERS = 8
"""Workers of the gradient on a CPU, for any number of threads, so that sums have the same order everywhere."""
_MOST_BYTES = 2**28
"""Most bytes of the workers' copies of a volume; gradients of a larger volume are added atomically."""
_TABLES = 64
"""Copies of the table's gradient on a GPU: with one copy, all rays would add to its few rows."""
_VALUES = "volume[x, y, z], table[k, 4], origins[n, 3], directions[n, 3], box[6], offsets[n], settings[10]"


def volume_render(
    volume: Tensor,
    table: Tensor,
    origins: Tensor,
    directions: Tensor,
    aabb: Tensor | Sequence[float],
    *,
    step: float,
    jitter: Jitter = None,
    shading: Shading | None = None,
    background: Tensor | None = None,
    threshold: float = 0.0,
    engine: str | None = None,
) -> Rendered:
    """Render a volume with emission and absorption along rays, colored by a transfer function.

    The box is divided into x by y by z equal cells; `volume[i, j, k]` is the value at the *center* of cell (i, j, k).
    Between centers, values are interpolated trilinearly; within half a cell of the box's faces they are those of the
    nearest centers: `torch.nn.functional.grid_sample(align_corners=False, padding_mode="border")`. A value from 0 to 1
    is looked up in the table, linearly between its rows; other values take the first or the last row.

    The part of a ray in the box, from t_near (0 if it starts inside) to t_far, is divided into n = ceil(length / step)
    equal samples, at most 65,536. With l the length of a sample, and its color and density:

        alpha = 1 - exp(-density l)
        weight = alpha (1 - opacity so far)                     0 once 1 - opacity is below `threshold`
        color = sum of weight color + (1 - opacity) background
        opacity = sum of weight,  depth = sum of weight t

    `tinsmith.reference.volume_render` has all formulas, those of shading too, and is the reference.

    Args:
        volume: (x, y, z), float32 or float64: values, which the table maps from 0 to 1.
        table: (k, 4), rows of red, green, blue and density, per unit of length, not negative.
        origins: (..., 3), where rays start.
        directions: (..., 3), of any length; t is in units of it.
        aabb: (6), the box: min x, y, z, max x, y, z.
        step: the largest length of a sample, in the unit of positions.
        jitter: where a ray is evaluated within its samples: offsets (...) in [0, 1), True or a generator to draw them,
            None for the middle.
        shading: light on the surfaces in the volume; None for the table's colors without shading.
        background: (3) or (..., 3), the color behind the volume; None for black.
        threshold: a ray ends when its transmittance is below this.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        color (..., 3), opacity (...) and depth (...): see `Rendered`. Rays that miss have the background's color,
        opacity 0 and depth 0.

    Differentiable in volume, table, origins, directions, background, aabb and offsets, not in shading, step and
    threshold. The number of samples of a ray, and its end, are not differentiated. On the CPU the gradient in a volume
    of up to 32 MB is summed in a fixed order, for any number of threads. For larger volumes, and for all gradients on
    a GPU, the order is not fixed, so the last bits differ from run to run.

    Raises:
        ShapeError: tensors do not fit each other.
        DtypeError: they are not all float32 or all float64.
        DeviceError: they are on different devices.
        ArgumentError: an invalid step, threshold, box or shading.

    Example:
        >>> volume, table = torch.rand(16, 16, 16), torch.rand(8, 4)
        >>> origins, directions = torch.rand(100, 3), torch.randn(100, 3)
        >>> ts.render.volume_render(volume, table, origins, directions, [0, 0, 0, 1, 1, 1], step=0.05).color.shape
        torch.Size([100, 3])
    """
    volume, table, origins, directions = map(cast_to_single, (volume, table, origins, directions))
    rays = origins.shape[:-1]
    box = _convert_box(aabb, volume)
    _check(volume, table, origins, directions, box)
    settings = _check_settings(step, threshold, shading)
    numbers = _make_constant(settings, volume.dtype, volume.device)
    offsets = _choose_offsets(jitter, origins)
    rule = get_op("volume_render", engine, volume, shading is not None)
    inputs = (volume, table, origins.reshape(-1, 3), directions.reshape(-1, 3), box, offsets.reshape(-1), numbers)
    color, opacity, depth = (tensor.reshape((*rays, *tensor.shape[1:])) for tensor in run(rule, *inputs)[:3])
    if background is not None:
        if background.shape not in ((3,), origins.shape):
            rows = [("background", str(tuple(background.shape))), ("origins", str(tuple(origins.shape)))]
            remedy = "Pass one color, [3], or one per ray."
            raise ShapeError(refusal("`background` of `volume_render` does not fit the rays", rows, remedy))
        color = color + (1 - opacity)[..., None] * background
    return Rendered(color, opacity, depth)


# The ops ----------------------------------------------------------------------------------------
@register_maker("volume_render")
def _make_rule(lang: ModuleType, fp: str, shaded: bool) -> Rule:
    kernel = kernels.volume_render(lang, fp=fp, shaded=shaded)
    init: dict[str, str] = dict.fromkeys(("color", "opacity", "depth", "before", "used"), "empty")
    outputs = "color[n, 3], opacity[n], depth[n], before[n], used[n]: i32"
    value = op(f"{_VALUES} -> {outputs}", init=init, adjoint="source", races="allow")(kernel)
    return Rule(value, functools.partial(_compute_gradients, lang.__name__, shaded))


@register_maker("volume_gradient")
def _make_gradient_op(
    lang: ModuleType, fp: str, shaded: bool, apart: bool, volumes: int, tables: int, wanted: tuple[bool, bool, bool]
) -> Op:
    for_volume, for_table, for_rays = wanted
    kernel = kernels.volume_gradient(
        lang,
        fp=fp,
        shaded=shaded,
        apart=apart,
        shared=volumes == 1,
        for_volume=for_volume,
        for_table=for_table,
        for_rays=for_rays,
    )
    gradients = "by_volume[x, y, z], by_table[k, 4], by_origin[n, 3], by_direction[n, 3]"
    return op(
        f"{_VALUES}, c[n, 3], o[n], d[n], last[n], used[n]: i32 -> {gradients}",
        scratch=f"volumes[{volumes}, {'x, y, z' if for_volume else '1, 1, 1'}], tables[{tables}, k, 4]",
        init=dict.fromkeys(("by_volume", "by_table", "by_origin", "by_direction"), "empty"),
        # The sanitizer's tests show that no two iterations race. A check here would take a second of the first call.
        races="allow",
    )(kernel)


def _compute_gradients(engine: str, shaded: bool, asked: Asked) -> Sequence[Tensor | None]:
    """Compute the gradients of a backward pass: by the handwritten kernel, or by the generated derivative if needed.

    The kernel has no second derivatives, and no gradients of the box and the offsets.
    """
    for_volume, for_table, *for_rays, for_box, for_offsets, _ = asked.wants
    rule = get_op("volume_render", engine, asked.inputs[0], shaded)
    if torch.is_grad_enabled() or for_box or for_offsets:
        return differentiate_value(rule, asked)
    volume = asked.inputs[0]
    on_cpu = volume.device.type == "cpu"
    fits = volume.numel() * volume.element_size() * _WORKERS <= _MOST_BYTES
    volumes, tables = (_WORKERS if fits and on_cpu else 1), (_WORKERS if on_cpu else _TABLES)
    wanted = (for_volume, for_table, any(for_rays))
    gradient = get_op("volume_gradient", engine, volume, shaded, on_cpu, volumes, tables, wanted)
    cotangents = (asked.cotangent(index).contiguous() for index in range(3))
    gradients = gradient(*asked.inputs, *cotangents, *asked.outputs[3:])
    return [*gradients, None, None, None]


# What a call is given ---------------------------------------------------------------------------
def _choose_offsets(jitter: Jitter, origins: Tensor) -> Tensor:
    """Return the position of each ray within its samples, in [0, 1): given, drawn, or 1/2 without jitter."""
    rays = origins.shape[:-1]
    if not isinstance(jitter, Tensor):
        return draw_offsets(jitter, rays, origins)
    if jitter.shape != rays:
        rows = [("jitter", str(tuple(jitter.shape))), ("rays", str(tuple(rays)))]
        raise ShapeError(refusal("`jitter` of `volume_render` does not fit the rays", rows, "Pass one offset per ray."))
    return jitter.to(origins)


def _convert_box(aabb: Tensor | Sequence[float], volume: Tensor) -> Tensor:
    """Convert a box to a tensor (6) with the volume's dtype and device. A tensor is only flattened.

    Raises:
        ArgumentError: it is not a box. Values of a tensor are not checked.
    """
    if isinstance(aabb, Tensor):
        if aabb.numel() != 6:
            raise _make_box_error(f"a tensor of shape {tuple(aabb.shape)}")
        return aabb.reshape(6)
    sides = tuple(float(side) for side in aabb)
    if len(sides) != 6 or not all(low < high for low, high in zip(sides[:3], sides[3:], strict=True)):
        raise _make_box_error(str(sides))
    return _make_constant(sides, volume.dtype, volume.device)


def _make_box_error(box: str) -> ArgumentError:
    rows = [("got", box), ("expected", "min x, y, z, max x, y, z, each min below its max")]
    remedy = "Pass [0, 0, 0, 1, 1, 1] for a unit cube."
    return ArgumentError(refusal("`aabb` of `volume_render` is not a box", rows, remedy))


def _check_settings(step: float, threshold: float, shading: Shading | None) -> tuple[float, ...]:
    """Return the settings of a call as the kernel takes them: step, threshold, shading, and the light's direction.

    Raises:
        ArgumentError: a number is out of range.
    """
    if not 0 < step < math.inf:
        rows = [("step", repr(step)), ("expected", "a length above 0")]
        remedy = "Pass a positive length, such as a cell's side."
        raise ArgumentError(refusal("`step` of `volume_render` is out of range", rows, remedy))
    if not 0 <= threshold < 1:
        rows = [("threshold", repr(threshold)), ("expected", "0 or more, and less than 1")]
        remedy = "Pass a small number: 0.001 makes no visible difference."
        raise ArgumentError(refusal("`threshold` of `volume_render` is out of range", rows, remedy))
    lit = Shading() if shading is None else shading
    light = (0.0, 0.0, 0.0) if lit.light is None else tuple(float(part) for part in lit.light)
    size = math.hypot(*light)
    if len(light) != 3 or (lit.light is not None and not 0 < size < math.inf):
        rows = [("light", repr(lit.light)), ("expected", "three numbers that are not all 0, or None")]
        remedy = "Pass a direction, or None for a light at the camera."
        raise ArgumentError(refusal("`shading.light` of `volume_render` is not a direction", rows, remedy))
    if lit.shininess < 1 or lit.softness <= 0:
        rows = [("shininess", f"{lit.shininess}", "1 or more"), ("softness", f"{lit.softness}", "above 0")]
        remedy = "Pass values in range; those of Shading() suit most volumes."
        raise ArgumentError(refusal("`shading` of `volume_render` is out of range", rows, remedy))
    numbers = (lit.ambient, lit.diffuse, lit.specular, lit.shininess, lit.softness)
    return (float(step), float(threshold), *map(float, numbers), *(part / (size or 1.0) for part in light))


def _make_constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor, cached for the next call except while compiling."""
    if torch.compiler.is_compiling():
        return torch.tensor(numbers, dtype=dtype, device=device)
    return _get_constant(numbers, dtype, device)


@cache_results("constants of rendering", 256)
def _get_constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with suspend_transforms():  # the tensor outlives the call, so it must not belong to a mode or transform
        return torch.tensor(numbers, dtype=dtype, device=device)


# What does not fit ------------------------------------------------------------------------------
def _check(volume: Tensor, table: Tensor, origins: Tensor, directions: Tensor, box: Tensor) -> None:
    given = {"volume": volume, "table": table, "origins": origins, "directions": directions, "aabb": box}
    forms = {
        "volume": ("[x, y, z]", volume.ndim == 3 and volume.numel() > 0),
        "table": ("[k, 4]", table.ndim == 2 and table.shape[1] == 4 and len(table) > 0),
        "origins": ("[..., 3]", origins.ndim > 0 and origins.shape[-1] == 3),
        "directions": ("[..., 3]", directions.shape == origins.shape),
    }
    if not all(fits for _, fits in forms.values()):
        notes = {"directions": "as origins", "table": "with a row at least", "volume": "with a cell at least"}
        rows = [
            (name, f"{form} = {tuple(given[name].shape)}", *([] if fits else [notes.get(name, "the last should be 3")]))
            for name, (form, fits) in forms.items()
        ]
        remedy = "Correct the shapes marked by an arrow."
        raise ShapeError(refusal("the tensors of `volume_render` have the wrong shapes", rows, remedy))
    if len({tensor.dtype for tensor in given.values()}) > 1:
        rows = [(name, str(tensor.dtype)) for name, tensor in given.items()]
        remedy = "Convert all of them with .float(), or all with .double()."
        raise DtypeError(refusal("the tensors of `volume_render` have different or unsupported dtypes", rows, remedy))
    if len({tensor.device for tensor in given.values()}) > 1:
        rows = [(name, str(tensor.device)) for name, tensor in given.items()]
        remedy = "Move them to one device with .to()."
        raise DeviceError(refusal("the tensors of `volume_render` are on different devices", rows, remedy))
