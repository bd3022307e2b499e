"""Compositing: emission and absorption along rays, front to back, and its gradients by hand.

The letters, for the samples i of a ray (the reference is `reference.composite`):

    alpha_i = 1 - exp(-density_i step_i)
    weight_i = (what shines through to sample i) alpha_i        0 once that is below the threshold
    colour = sum of weight_i colour_i,  depth = sum of weight_i t_i,  left = what shines through in the end

A thread takes a ray. Its gradients are one sweep from the last sample to the first, of additions alone: what shines
through behind sample i is left + (the sum of the weights behind i), and with gain_i = d loss / d weight_i

    d loss / d (density_i step_i) = gain_i (left + sum over j > i of weight_j) - sum over j > i of weight_j gain_j
                                    - left d loss / d left

So nothing is kept but the outputs, nothing is divided by, and no exponential is taken twice. All that is added up is
positive (densities are), so that behind a nearly opaque sample it is as exact as in front of it: 1 - opacity would
not be. `left` tells the sweep too whether a ray ended early: then the samples behind its last weight get no gradient,
and else those without a weight, of density 0, get theirs.

Measured on one core, 8192 rays of 64 samples, 3 channels, float32: values 4.9 ms with a sample at a time, and 2.9 ms
with `GROUP` at a time, whose exponentials do not wait for each other (one of our own, of arithmetic alone, was no
faster than the library's); gradients 5.9 ms with the rays in their order, and 1.9 ms from the last ray to the first:
then memory is gone through in one direction, and fetched ahead.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._packed import spans

GROUP = 4
"""Samples whose exponentials are taken at once."""


class Composite(NamedTuple):
    """The kernels of compositing. The arrays, all of one float type but `rays`:

        densities, t, steps  [s]      samples
        colours              [s * c]  a sample's channels beside each other
        rays                 [n, 2]   int32: start, count; no two rays share a sample
        colour  [n, c],  depth, left  [n],  weights  [s]

    Samples that no ray names keep what was in the outputs.

    Attributes:
        value: densities, colours, t, steps, rays, threshold -> colour, depth, left, weights. `from_alphas`, the first
            are alphas, and `steps` may be empty.
        pull: densities, colours, t, steps, rays, weights, left, c_colour, c_depth, c_left, c_weights, threshold
            -> slope_densities, slope_colours, slope_t, slope_steps, with cotangents `c_`. Without `by_weights`,
            `c_weights` is not read, and without `by_place`, `slope_t` and `slope_steps` are not written.
        by_hand: the same as the backward kernel of an op, with all of them.
    """

    value: Any
    pull: Any
    by_hand: Any


def composite(
    lang: ModuleType,
    *,
    fp: str,
    n_channels: int,
    by_weights: bool,
    by_place: bool,
    grouped: bool,
    from_alphas: bool = False,
) -> Composite:
    """Build the kernels of compositing for an engine.

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        n_channels: of the colours, unrolled. May be 0.
        by_weights: whether `pull` is given cotangents of the weights.
        by_place: whether `pull` gives gradients in t and the steps.
        grouped: whether `value` takes `GROUP` samples at a time, which is faster; without, its generated derivatives
            are.
        from_alphas: whether `value` finds alphas in place of `densities`; `steps` are not read then. Not with
            `grouped`: there is no exponential to wait for. `pull` and `by_hand` are of densities.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = spans(lang)
    absorbed = absorption(lang, fp=fp)
    group = GROUP

    @lang.func
    def alpha_of(densities: lang.template(), steps: lang.template(), i):
        """What a sample absorbs of the light behind it, and what it lets through."""
        alpha, shine = densities[i], real(1.0) - densities[i]
        if lang.static(not from_alphas):
            alpha, shine = absorbed(densities[i] * steps[i])
        return alpha, shine

    @lang.kernel
    def value(
        densities: array,
        colours: array,
        t: array,
        steps: array,
        rays: array,
        threshold: real,
        colour: array,
        depth: array,
        left: array,
        weights: array,
    ):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, densities.shape[0])
            through = real(1.0)
            far = real(0.0)
            total = lang.Vector([0.0] * max(n_channels, 1), dt=real)
            if lang.static(grouped):
                is_open = True
                for _step in range((last - first) // group):
                    if is_open:
                        alpha = lang.Vector([0.0] * group, dt=real)
                        shine = lang.Vector([0.0] * group, dt=real)
                        behind = through
                        for j in lang.static(range(group)):
                            alpha[j], shine[j] = absorbed(densities[first + j] * steps[first + j])
                        for j in lang.static(range(group - 1)):
                            behind *= shine[j]
                        is_open = behind >= threshold  # else the ray ends somewhere in here: one by one then
                        if is_open:
                            for j in lang.static(range(group)):
                                weight = through * alpha[j]
                                through *= shine[j]
                                far += weight * t[first + j]
                                for k in lang.static(range(n_channels)):
                                    total[k] += weight * colours[(first + j) * n_channels + k]
                                weights[first + j] = weight
                            first += group
            for i in range(first, last):
                weight = real(0.0)
                if through >= threshold:
                    alpha, shine = alpha_of(densities, steps, i)
                    weight = through * alpha
                    through *= shine
                    far += weight * t[i]
                    for k in lang.static(range(n_channels)):
                        total[k] += weight * colours[i * n_channels + k]
                weights[i] = weight
            depth[ray] = far
            left[ray] = through
            for k in lang.static(range(n_channels)):
                colour[ray, k] = total[k]

    @lang.func
    def sweep(
        densities: lang.template(),
        colours: lang.template(),
        t: lang.template(),
        steps: lang.template(),
        rays: lang.template(),
        threshold,
        weights: lang.template(),
        left: lang.template(),
        c_colour: lang.template(),
        c_depth: lang.template(),
        c_left: lang.template(),
        c_weights: lang.template(),
        slope_densities: lang.template(),
        slope_colours: lang.template(),
        slope_t: lang.template(),
        slope_steps: lang.template(),
        ray,
        has_weights: lang.template(),
        has_place: lang.template(),
    ):
        """The gradients of one ray's samples, the last first."""
        first, last = span(rays, ray, densities.shape[0])
        through = left[ray]
        behind = through * c_left[ray]
        is_dark = through < threshold
        far = c_depth[ray]
        c = lang.Vector([0.0] * max(n_channels, 1), dt=real)
        for k in lang.static(range(n_channels)):
            c[k] = c_colour[ray, k]
        for back in range(last - first):
            i = last - 1 - back
            weight = weights[i]
            if weight != real(0.0):
                is_dark = False
            gain = far * t[i]
            if lang.static(has_weights):
                gain += c_weights[i]
            for k in lang.static(range(n_channels)):
                gain += c[k] * colours[i * n_channels + k]
                slope_colours[i * n_channels + k] = weight * c[k]
            slope = lang.select(is_dark, real(0.0), gain * through - behind)
            slope_densities[i] = slope * steps[i]
            if lang.static(has_place):
                slope_steps[i] = slope * densities[i]
                slope_t[i] = weight * far
            behind += weight * gain
            through += weight

    @lang.kernel
    def pull(
        densities: array,
        colours: array,
        t: array,
        steps: array,
        rays: array,
        weights: array,
        left: array,
        c_colour: array,
        c_depth: array,
        c_left: array,
        c_weights: array,
        threshold: real,
        slope_densities: array,
        slope_colours: array,
        slope_t: array,
        slope_steps: array,
    ):
        for place in range(rays.shape[0]):
            sweep(
                densities,
                colours,
                t,
                steps,
                rays,
                threshold,
                weights,
                left,
                c_colour,
                c_depth,
                c_left,
                c_weights,
                slope_densities,
                slope_colours,
                slope_t,
                slope_steps,
                rays.shape[0] - 1 - place,
                by_weights,
                by_place,
            )

    @lang.kernel
    def by_hand(
        densities: array,
        colours: array,
        t: array,
        steps: array,
        rays: array,
        weights: array,
        left: array,
        grad_colour: array,
        grad_depth: array,
        grad_left: array,
        grad_weights: array,
        threshold: real,
        grad_densities: array,
        grad_colours: array,
        grad_t: array,
        grad_steps: array,
    ):
        for place in range(rays.shape[0]):
            sweep(
                densities,
                colours,
                t,
                steps,
                rays,
                threshold,
                weights,
                left,
                grad_colour,
                grad_depth,
                grad_left,
                grad_weights,
                grad_densities,
                grad_colours,
                grad_t,
                grad_steps,
                rays.shape[0] - 1 - place,
                True,
                True,
            )

    return Composite(value, pull, by_hand)


def absorption(lang: ModuleType, *, fp: str) -> Any:
    """Build the function `absorbed(x)`: 1 - exp(-x) and exp(-x).

    Where x is small the difference would lose the digits that a thin sample has: there it is the series, in float64
    with whole numbers over a factorial, since literals are rounded to float32.
    """
    real = getattr(lang, fp)
    double = fp == "f64"

    @lang.func
    def absorb(x):
        shine = lang.exp(-x)
        series = x
        if lang.static(double):
            a = x * (real(56.0) - x * (real(8.0) - x))
            b = x * (real(1680.0) - x * (real(336.0) - a))
            series = x * (real(40320.0) - x * (real(20160.0) - x * (real(6720.0) - b))) / real(40320.0)
        else:
            series = x * (real(1.0) - x * (real(0.5) - x * (real(0.16666667) - x * real(0.041666667))))
        return lang.select(lang.abs(x) < real(0.03125), series, real(1.0) - shine), shine

    return absorb
