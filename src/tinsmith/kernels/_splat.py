"""The kernel that splats anisotropic 2-D Gaussians into an image. Its gradient is generated.

The model (its reference is `reference.splat`):

    a = ( cos(angle) dx + sin(angle) dy) / scale_x        dx, dy: from pos to the pixel's center
    b = (-sin(angle) dx + cos(angle) dy) / scale_y
    alpha = opacity exp(-(a^2 + b^2) / 2)                 left out where alpha < 1 / 255
    image[y, x] = sum over all Gaussians of alpha color

A Gaussian visits the rows of its own bounding box, and in each row the pixels of its ellipse: at
the edge alpha is 1/255, so `reach` = sqrt(2 log(255 opacity)) standard deviations. Against a scan
of the whole box with a test in each pixel this halves the time.

Colors are added in any order, so nothing needs sorting, and the gradient needs no tape: alpha is recomputed in the
backward pass.

Measured on 2 cores, 2000 Gaussians, 256 x 218 pixels: with atomic additions into the image two
threads take 6 to 7 ms, more than twice the time of one thread without them (2.4 ms), since an
atomic addition costs more than the `exp` beside it. So on the CPU the image is painted by one
thread (`serial`), in the Gaussians' order, so results are deterministic. The gradient only gathers, each
Gaussian from its own rows, without atomics, and is deterministic too.
"""

from types import ModuleType
from typing import Any

INVERSE_FAINTEST = 255.0  # exact in float32: a literal 1/255 would spoil float64 tensors


def splat(lang: ModuleType, *, serial: bool) -> Any:
    """Build the splatting kernel for an engine.

    Its parameters, all float32 or all float64, lengths in pixels; the center of
    the pixel in row y, column x is at (x + 0.5, y + 0.5):

        pos      [n, 2]     center (x, y). Differentiable, as all the inputs are.
        scale    [n, 2]     standard deviations along the two axes, positive
        angle    [n]        from the image's x axis to the first of them, radians, towards +y
        color   [n, 3]     any sign
        opacity  [n]        at the center; nothing is drawn where it is 1/255 or less
        image    [h, w, 3]  is added to

    Which pixels a Gaussian visits is not differentiated.

    Args:
        lang: the engine's module.
        serial: paint with one thread and no atomics: right for the CPU. On a GPU pass False.
    """
    array = lang.types.ndarray()

    frame, rows, columns = build_geometry(lang)

    @lang.kernel
    def splat(pos: array, scale: array, angle: array, color: array, opacity: array, image: array):
        lang.loop_config(serialize=serial)
        for i in range(pos.shape[0]):
            px, py, peak = pos[i, 0], pos[i, 1], opacity[i]
            if peak * INVERSE_FAINTEST > 1.0:
                ax, ay, bx, by = frame(scale[i, 0], scale[i, 1], angle[i])
                reach2 = 2.0 * lang.log(peak * INVERSE_FAINTEST)
                top, bottom = rows(py, ax, ay, bx, by, reach2, image.shape[0])
                for y in range(top, bottom):
                    dy = y + 0.5 - py
                    left, right = columns(px, dy, ax, ay, bx, by, reach2, image.shape[1])
                    for x in range(left, right):
                        dx = x + 0.5 - px
                        a, b = ax * dx + ay * dy, bx * dx + by * dy
                        alpha = peak * lang.exp(-0.5 * (a * a + b * b))
                        for channel in lang.static(range(3)):
                            image[y, x, channel] += alpha * color[i, channel]

    return splat


def build_geometry(lang: ModuleType) -> tuple[Any, Any, Any]:
    """Build the functions of a Gaussian's footprint: `frame` (its axes), and the `rows` and `columns`
    that it covers.
    """

    @lang.func
    def frame(scale_x, scale_y, angle):
        """Return (ax, ay, bx, by) such that a = ax dx + ay dy and b = bx dx + by dy."""
        c, s = lang.cos(angle), lang.sin(angle)
        return c / scale_x, s / scale_x, -s / scale_y, c / scale_y

    @lang.func
    def first_pixel(edge, size):
        """Return the index of the first pixel whose center is not before `edge`, or `size` if there is none."""
        # Clamped as a float, since a huge one has no integer, and as an integer, since a NaN may pass the first.
        clamped = lang.min(lang.max(edge - 0.5, 0.0), size)
        return lang.max(0, lang.min(size, lang.cast(lang.ceil(clamped), lang.i32)))

    @lang.func
    def rows(y, ax, ay, bx, by, reach2, height):
        """Return the first row of the bounding box, and the one after its last."""
        half = lang.sqrt(reach2 * (ax * ax + bx * bx)) / lang.abs(ax * by - ay * bx)
        return first_pixel(y - half, height), first_pixel(y + half, height)

    @lang.func
    def columns(x, dy, ax, ay, bx, by, reach2, width):
        """Return the first pixel of the ellipse in the row at `dy`, and the one after its last."""
        # a^2 + b^2 = xx dx^2 + 2 xy dx dy + yy dy^2 = reach2, solved for dx; xx yy - xy^2 = area^2.
        xx, xy, area = ax * ax + bx * bx, ax * ay + bx * by, ax * by - ay * bx
        middle = x - xy * dy / xx
        half = lang.sqrt(lang.max(reach2 * xx - area * area * dy * dy, 0.0)) / xx
        return first_pixel(middle - half, width), first_pixel(middle + half, width)

    return frame, rows, columns
