"""Kernels of grids of features at several resolutions (instant-ngp's encoding), with handwritten gradients.

For a point x and a level with its scale (the reference is `reference.grid`):

    pos = x scale + 1/2,  cell = floor(pos),  part = pos - cell
    a corner of the cell has a bit for each dim: 0 the lower side, with weight 1 - part, 1 the upper, with part
    y[level] = sum over corners of (product of its weights) table[slot(corner)]

On a CPU each level belongs to one thread (`apart`): its part of the table stays in that core's cache, and its
gradient is added with plain loads and stores, in the order of the points, so that results are deterministic.
On a GPU points and levels are parallel, and the table's gradient is added atomically.

The gradients are kernels, not generated from `value`: a generated one adds to the table atomically, and on the CPU an
atomic addition costs several times the rest of the work. The gradient kernels are ops too, and their own derivatives
are generated; that is where second derivatives come from (of a distance field in x, say).

`cells` has a row for each level, with the numbers that find a slot, as int32 (unsigned arithmetic wraps alike):

    first slot | slots | mask | is hashed | a factor for each dim
    a corner's slot = first + ((xor or sum over dims of index * factor) & mask) % slots

The division is left out where the index is below `slots` anyway, which is nearly always: a hashed level has a power
of two of slots, so the mask suffices. Corners of up to three dims are unrolled, those of further dims looped over.

Measured on 2 cores, 16 levels of up to 2^19 slots in 3-D, 100,000 points, with levels apart and without: y in 80
and 170 ms, the gradient in x in 110 and 230 ms, that in the table in 100 and (atomically) 400 ms. Both gradients in
one kernel take 10 to 30 % longer than one after the other: two tables at a time do not stay in the cache.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._shares import SHARE, build_only_first

UNROLLED = 3
"""The number of dims whose corners are unrolled."""
FACTORS = 4
"""The number of columns of `cells` before the factors."""


class Grid(NamedTuple):
    """The kernels of a grid encoding. The arrays, all of one float type unless another is named:

        x       [n, d]      positions; in [0, 1] a level's cells are all met, outside they repeat or collide
        table   [t, f]      features, level after level; a row is a vector, found in memory once
        scales  [l]         float32
        cells   [l, 4 + d]  int32; see the head of the file
        c       [n, l f]    cotangents of y

    No array is called `grad_x`, which is what the gradient of `x` is called in a generated kernel.

    Attributes:
        value: x, table, scales, cells -> y [n, l f].
        by_position: x, table, scales, cells, c -> slope [n, d], the gradient in x. With levels apart it also
            takes `parts` [w, n, d], zeros, before `slope`: the sums of w workers, who take turns with the levels.
        by_table: x, scales, cells, c -> total [t, f], the gradient in table, which is added to.
    """

    value: Any
    by_position: Any
    by_table: Any


def grid(
    lang: ModuleType, *, fp: str, n_dims: int, n_features: int, interpolation: str, apart: bool, atomic: bool
) -> Grid:
    """Build the kernels of a grid encoding: its values, and their gradients in the positions and in the table.

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        n_dims: the number of coordinates of a point.
        n_features: the number of features of a level, which are a row of the table.
        interpolation: "Nearest", "Linear" or "Smoothstep".
        apart: run one thread for each level instead of each point: right for a CPU with no more cores than levels.
        atomic: add gradients to the table from all points at once, by atomics. On a CPU pass False: then one thread
            for each level adds them.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    features = lang.types.ndarray(lang.types.vector(n_features, real), ndim=1)
    only_first = build_only_first(lang)
    level_of, place, slot, weight, slope_of = build_geometry(lang, fp=fp, n_dims=n_dims, interpolation=interpolation)
    corners = 1 if interpolation == "Nearest" else 2**n_dims
    near = min(corners, 2**UNROLLED)
    far = corners // near

    @lang.func
    def read(x: lang.template(), table: lang.template(), scale, facts, i):
        """Return the features of point i on a level."""
        cell, part, _ = place(x, scale, i)
        total = lang.Vector([0.0] * n_features, dt=real)
        for high in range(far):
            for low in lang.static(range(near)):
                row = slot(facts, cell, high * near + low)
                total += weight(part, high * near + low) * table[row]
        return total

    @lang.kernel
    def value_levels_apart(x: array, table: features, scales: array, cells: array, y: array):
        for share in range(scales.shape[0] * SHARE):
            level = share // SHARE
            scale, facts = level_of(scales, cells, level)
            for i in range(only_first(share, x.shape[0])):
                total = read(x, table, scale, facts, i)
                for k in lang.static(range(n_features)):
                    y[i, level * n_features + k] = total[k]

    @lang.kernel
    def value(x: array, table: features, scales: array, cells: array, y: array):
        for i, level in lang.ndrange(x.shape[0], scales.shape[0]):
            scale, facts = level_of(scales, cells, level)
            total = read(x, table, scale, facts, i)
            for k in lang.static(range(n_features)):
                y[i, level * n_features + k] = total[k]

    @lang.func
    def pull(
        x: lang.template(),
        table: lang.template(),
        scale,
        facts,
        c: lang.template(),
        i,
        level,
    ):
        """Return a level's contribution to the gradient in the position of point i."""
        cell, part, steep = place(x, scale, i)
        total = lang.Vector([0.0] * n_dims, dt=real)
        pulls = lang.Vector([0.0] * n_features, dt=real)
        for k in lang.static(range(n_features)):
            pulls[k] = c[i, level * n_features + k]
        for high in range(far):
            for low in lang.static(range(near)):
                row = slot(facts, cell, high * near + low)
                gain = table[row].dot(pulls)
                for dim in lang.static(range(n_dims)):
                    total[dim] += gain * slope_of(part, high * near + low, dim)
        for dim in lang.static(range(n_dims)):
            total[dim] *= steep[dim]
        return total

    @lang.kernel
    def by_position_levels_apart(
        x: array, table: features, scales: array, cells: array, c: array, parts: array, slope: array
    ):
        for share in range(parts.shape[0] * SHARE):
            worker = share // SHARE
            for turn in range(only_first(share, (scales.shape[0] - worker + parts.shape[0] - 1) // parts.shape[0])):
                level = worker + turn * parts.shape[0]
                scale, facts = level_of(scales, cells, level)
                for i in range(x.shape[0]):
                    here = pull(x, table, scale, facts, c, i, level)
                    for dim in lang.static(range(n_dims)):
                        parts[worker, i, dim] = parts[worker, i, dim] + here[dim]
        for i in range(x.shape[0]):
            for dim in lang.static(range(n_dims)):
                total = real(0.0)
                for worker in range(parts.shape[0]):
                    total += parts[worker, i, dim]
                slope[i, dim] = total

    @lang.kernel
    def by_position(x: array, table: features, scales: array, cells: array, c: array, slope: array):
        for i in range(x.shape[0]):
            total = lang.Vector([0.0] * n_dims, dt=real)
            for level in range(scales.shape[0]):
                scale, facts = level_of(scales, cells, level)
                total += pull(x, table, scale, facts, c, i, level)
            for dim in lang.static(range(n_dims)):
                slope[i, dim] = total[dim]

    @lang.func
    def add(x: lang.template(), scale, facts, c: lang.template(), total: lang.template(), i, level):
        """Add the contribution of point i to the gradient of the table."""
        cell, part, _ = place(x, scale, i)
        gains = lang.Vector([0.0] * n_features, dt=real)
        for k in lang.static(range(n_features)):
            gains[k] = c[i, level * n_features + k]
        for high in range(far):
            for low in lang.static(range(near)):
                row = slot(facts, cell, high * near + low)
                share = weight(part, high * near + low)
                if lang.static(not atomic):
                    total[row] = total[row] + share * gains
                else:
                    total[row] += share * gains

    @lang.kernel
    def by_table_levels_apart(x: array, scales: array, cells: array, c: array, total: features):
        for share in range(scales.shape[0] * SHARE):
            level = share // SHARE
            scale, facts = level_of(scales, cells, level)
            for i in range(only_first(share, x.shape[0])):
                add(x, scale, facts, c, total, i, level)

    @lang.kernel
    def by_table(x: array, scales: array, cells: array, c: array, total: features):
        for i, level in lang.ndrange(x.shape[0], scales.shape[0]):
            scale, facts = level_of(scales, cells, level)
            add(x, scale, facts, c, total, i, level)

    return Grid(
        value_levels_apart if apart else value,
        by_position_levels_apart if apart else by_position,
        by_table if atomic else by_table_levels_apart,
    )


def build_geometry(lang: ModuleType, *, fp: str, n_dims: int, interpolation: str) -> tuple[Any, Any, Any, Any, Any]:
    """Build the functions of a level, its cells and their corners: `level_of`, `place`, `slot`,
    `weight`, `slope_of`.
    """
    real = getattr(lang, fp)
    smooth, nearest = interpolation == "Smoothstep", interpolation == "Nearest"
    factors = FACTORS

    @lang.func
    def level_of(scales: lang.template(), cells: lang.template(), level):
        """Return a level's scale and its row of `cells`. They are read once, since engines reload after each store."""
        facts = lang.Vector([0] * (factors + n_dims), dt=lang.i32)
        for k in lang.static(range(factors + n_dims)):
            facts[k] = cells[level, k]
        return lang.cast(scales[level], real), facts

    @lang.func
    def place(x: lang.template(), scale, i):
        """Return the cell that point i is in, its position in the cell, and the derivative of that in x."""
        cell = lang.Vector([0] * n_dims, dt=lang.i32)
        part = lang.Vector([0.0] * n_dims, dt=real)
        steep = lang.Vector([0.0] * n_dims, dt=real)
        for dim in lang.static(range(n_dims)):
            pos = x[i, dim] * scale + real(0.5)
            low = lang.floor(pos)
            at = pos - low
            cell[dim] = lang.cast(low, lang.i32)
            if lang.static(smooth):
                part[dim] = at * at * (real(3.0) - real(2.0) * at)
                steep[dim] = real(6.0) * at * (real(1.0) - at) * scale
            else:
                part[dim] = at
                steep[dim] = scale
        return cell, part, steep

    @lang.func
    def slot(facts, cell, corner):
        """Return the row of the table that holds a corner's features."""
        hashed, summed = 0, 0
        for dim in lang.static(range(n_dims)):
            term = (cell[dim] + ((corner >> dim) & 1)) * facts[factors + dim]
            hashed = hashed ^ term
            summed = summed + term
        index = lang.cast(lang.select(facts[3] == 1, hashed & facts[2], summed), lang.u32)
        size = lang.cast(facts[1], lang.u32)
        if index >= size:
            index = index % size
        return facts[0] + lang.cast(index, lang.i32)

    @lang.func
    def side(part, corner, dim: lang.template()):
        """Return a corner's interpolation weight along one dim."""
        return lang.select(((corner >> dim) & 1) == 1, part[dim], real(1.0) - part[dim])

    @lang.func
    def weight(part, corner):
        """Return a corner's interpolation weight."""
        product = real(1.0)
        if lang.static(not nearest):
            for dim in lang.static(range(n_dims)):
                product = product * side(part, corner, dim)
        return product

    @lang.func
    def slope_of(part, corner, along: lang.template()):
        """Return the derivative of a corner's weight in `part` along one dim."""
        product = lang.select(((corner >> along) & 1) == 1, real(1.0), real(-1.0))
        if lang.static(nearest):
            product = real(0.0)
        for dim in lang.static(range(n_dims)):
            if lang.static(dim != along):
                product = product * side(part, corner, dim)
        return product

    return level_of, place, slot, weight, slope_of
