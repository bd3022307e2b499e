"""The kernels of `compile_time.py`, from small to large, and two whose size is a parameter.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

import linecache
from collections.abc import Callable, Mapping
from typing import Any

import _adjoint_cases as adjoint_cases
import _adjoint_kernels as adjoint_kernels
import _peer_kernels as peers
import tinsmith as ts
from _simulations import mpm_on_arrays
from tinsmith import kernels


def compositing(lang: Any) -> ts.Op:
    return ts.op(adjoint_cases.RAYS)(adjoint_kernels.compositing(lang))


def online_softmax(lang: Any) -> ts.Op:
    return ts.op(adjoint_cases.SOFTMAX)(adjoint_kernels.online_softmax(lang))


def distortion(lang: Any) -> ts.Op:
    """Build the distortion loss: a chain of three kernels over ragged rays."""
    return ts.chain(adjoint_cases.DISTORTION, adjoint_kernels.distortion(lang), scratch=adjoint_cases.BETWEEN)


def mpm(lang: Any) -> ts.Op:
    """Build a step of the material point method in two dimensions: a chain of three kernels."""

    @lang.func
    def stress(now):  # engines take no other annotations
        turned, _ = lang.polar_decompose(now)
        grown = now.determinant()
        inner = 100.0 * (now - turned) @ now.transpose()
        return -1e-4 * (inner + lang.Matrix([[1.0, 0.0], [0.0, 1.0]]) * 50.0 * (grown - 1.0) * grown)

    return mpm_on_arrays(lang, stress, 2e-4, 16)


def projection(lang: Any) -> ts.Op:
    """Build the projection of 3-D Gaussians to fisheye cameras, as in `ts.render.gaussians`."""
    cameras = "viewmats[v, 4, 4], intrinsics[v, 3, 3], images[p]: i32, rows[p]: i32"
    values = "means2d[p, 2], depths[p], conics[p, 3], compensations[p]"
    spec = f"means[g, 3], covars[g, 6], {cameras}, radii[p, 2]: i32 -> {values}"
    return ts.op(spec)(kernels.gaussian_projection(lang, fp="f32", camera_model="fisheye"))


def volume(lang: Any) -> ts.Op:
    """Build the rendering of shaded rays through a volume, as in `ts.render.volume_render`."""
    values = "volume[x, y, z], table[k, 4], origins[n, 3], directions[n, 3], box[6], offsets[n], settings[10]"
    seen = "color[n, 3], opacity[n], depth[n], before[n], used[n]: i32"
    return ts.op(f"{values} -> {seen}", races="allow")(kernels.volume_render(lang, fp="f32", shaded=True))


def stencil(lang: Any, width: int) -> ts.Op:
    """Build a kernel whose particles add to `3 width^2` nodes of a grid around them, as in a material point method.

    All of it is unrolled, and each node has a condition of its own.
    """
    vector, matrix = lang.types.vector(3, lang.f32), lang.types.matrix(3, 3, lang.f32)
    vectors, matrices = (lang.types.ndarray(dtype=one, ndim=1) for one in (vector, matrix))
    grid = lang.types.ndarray(dtype=vector, ndim=3)

    @lang.kernel
    def stencil(place: vectors, speed: vectors, turn: matrices, momentum: grid):
        for p in place:
            if speed[p].norm() < 100.0:
                corner = lang.cast(lang.floor(place[p] * 8.0 - 0.5), lang.i32)
                off = place[p] * 8.0 - lang.cast(corner, lang.f32)
                shares = [0.5 * (1.5 - off) ** 2, 0.75 - (off - 1.0) ** 2, 0.5 * (off - 0.5) ** 2]
                for node in lang.static(lang.grouped(lang.ndrange(width, width, 3))):
                    share = 1.0
                    for axis in lang.static(range(3)):
                        share *= shares[node[axis]][axis]
                    if share > 1e-6:
                        momentum[corner + node] += share * (speed[p] + turn[p] @ (lang.cast(node, lang.f32) - off))

    return ts.op("place[n, 3], speed[n, 3], turn[n, 3, 3] -> momentum[9, 9, 9, 3]")(stencil)


_GROUP = """\
        a{0} = s * w[(i + {0}) % n] + 0.5
        s = lang.sin(a{0}) * t + x[i]
        t += s * 0.1
        if a{0} > t:
            t = t * s + a{0}
        else:
            s = s - 0.25 * t
        y[(i + {0}) % n] += s / (1.0 + a{0} * a{0})
"""
"""Seven statements of `generated`."""


def generated(lang: Any, count: int) -> ts.Op:
    """Build a kernel of about `count` statements, each of which depends on the ones before."""
    text = f"""\
@lang.kernel
def generated(x: array, w: array, y: array):
    for i in range(x.shape[0]):
        n = x.shape[0]
        s, t = x[i], w[i]
{"".join(_GROUP.format(place) for place in range(count // 7))}
        y[i] += s + t
"""
    file = f"<{count} statements, on {lang.__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # where engines look for a kernel's source
    space: dict[str, Any] = {"lang": lang, "array": lang.types.ndarray(dtype=lang.f32, ndim=1)}
    exec(compile(text, file, "exec"), space)
    return ts.op("x[n], w[n] -> y[n]")(space["generated"])


CASES: Mapping[str, Callable[[Any], Any]] = {
    "saxpy": peers.saxpy,
    "compositing": compositing,
    "march": peers.march,
    "online softmax": online_softmax,
    "splat": peers.splat,
    "distortion": distortion,
    "blend": peers.blend,
    "mpm": mpm,
    "projection": projection,
    "volume": volume,
}
"""Ops by name: each is made anew for an engine's module, so that nothing of it is known yet."""
GROWING: Mapping[str, Mapping[int, Callable[[Any], Any]]] = {
    "stencil, nodes": {3 * width**2: lambda lang, width=width: stencil(lang, width) for width in (1, 2, 3)},
    "generated, statements": {count: lambda lang, count=count: generated(lang, count) for count in (140, 280, 560)},
}
"""Ops by what grows, and how large it is."""


def name_of(what: str, size: int) -> str:
    """Return the name of an op of `GROWING` with this size."""
    return f"{what} {size}"
