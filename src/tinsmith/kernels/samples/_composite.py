"""Compositing: emission and absorption along rays, front to back, with handwritten gradients.

For the samples i of a ray (the reference is `reference.composite`):

    alpha_i = 1 - exp(-density_i step_i)
    weight_i = (transmittance before sample i) alpha_i          0 once that is below the threshold
    color = sum of weight_i color_i,  depth = sum of weight_i t_i,  left = transmittance at the end

A thread processes a ray. Its gradients are computed in one sweep from the last sample to the first, by additions only:
the transmittance after sample i is left + (the sum of the weights behind i), and with gain_i = d loss / d weight_i

    d loss / d (density_i step_i) = gain_i (left + sum over j > i of weight_j) - sum over j > i of weight_j gain_j
                                    - left d loss / d left

So only the outputs are saved, there is no division, and no exponential is computed twice. All terms are positive, as
densities are, so the result is as accurate behind a nearly opaque sample as in front of it; with 1 - opacity it would
not be. `left` also tells the sweep whether a ray ended early: then the samples behind its last weight get no gradient;
otherwise samples without a weight, of density 0, get theirs.

Measured on one core, 8192 rays of 64 samples, 3 channels, float32: values 4.9 ms with a sample at a time, and 2.9 ms
with `GROUP` at a time, whose exponentials are independent (the `exp` of `_arithmetic` was no faster than the
library's); gradients 5.9 ms with the rays in order, and 1.9 ms from the last ray to the first: then memory is accessed
in one direction, and prefetched.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._packed import build_span

GROUP = 4
"""The number of samples whose exponentials are computed together."""


class Composite(NamedTuple):
    """The kernels of compositing. The arrays, all of one float type but `rays`:

        densities, t, steps  [s]      samples
        colors              [s * c]  the channels of a sample are adjacent
        rays                 [n, 2]   int32: start, count; no two rays share a sample
        color  [n, c],  depth, left  [n],  weights  [s]

    Outputs of samples that belong to no ray are left unchanged.

    Attributes:
        value: densities, colors, t, steps, rays, threshold -> color, depth, left, weights. With `from_alphas`, the
            first are alphas, and `steps` may be empty.
        pull: densities, colors, t, steps, rays, weights, left, c_color, c_depth, c_left, c_weights, threshold
            -> slope_densities, slope_colors, slope_t, slope_steps, with cotangents `c_`. Without `by_weights`,
            `c_weights` is not read, and without `by_place`, `slope_t` and `slope_steps` are not written.
        by_hand: `pull` with all cotangents and gradients, as the backward kernel of an op.
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
    """Build the kernels that composite the samples of rays front to back, and compute their gradients.

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        n_channels: the number of color channels, unrolled. May be 0.
        by_weights: whether `pull` is given cotangents of the weights.
        by_place: whether `pull` computes gradients in t and the steps.
        grouped: whether `value` processes `GROUP` samples at a time, which is faster. Without it, its generated
            derivatives are faster.
        from_alphas: whether `value` gets alphas instead of `densities`; `steps` are not read then. Not with
            `grouped`: there is no exponential to wait for. `pull` and `by_hand` are of densities.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)
    absorbed = build_absorption(lang, fp=fp)
    group = GROUP

    @lang.func
    def alpha_of(densities: lang.template(), steps: lang.template(), i):
        """Return the fraction of light that a sample absorbs, and the fraction that it lets through."""
        alpha, shine = densities[i], real(1.0) - densities[i]
        if lang.static(not from_alphas):
            alpha, shine = absorbed(densities[i] * steps[i])
        return alpha, shine

    @lang.kernel
    def value(
        densities: array,
        colors: array,
        t: array,
        steps: array,
        rays: array,
        threshold: real,
        color: array,
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
                        is_open = behind >= threshold  # else the ray ends in this group: continue one by one
                        if is_open:
                            for j in lang.static(range(group)):
                                weight = through * alpha[j]
                                through *= shine[j]
                                far += weight * t[first + j]
                                for k in lang.static(range(n_channels)):
                                    total[k] += weight * colors[(first + j) * n_channels + k]
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
                        total[k] += weight * colors[i * n_channels + k]
                weights[i] = weight
            depth[ray] = far
            left[ray] = through
            for k in lang.static(range(n_channels)):
                color[ray, k] = total[k]

    @lang.func
    def sweep(
        densities: lang.template(),
        colors: lang.template(),
        t: lang.template(),
        steps: lang.template(),
        rays: lang.template(),
        threshold,
        weights: lang.template(),
        left: lang.template(),
        c_color: lang.template(),
        c_depth: lang.template(),
        c_left: lang.template(),
        c_weights: lang.template(),
        slope_densities: lang.template(),
        slope_colors: lang.template(),
        slope_t: lang.template(),
        slope_steps: lang.template(),
        ray,
        has_weights: lang.template(),
        has_place: lang.template(),
    ):
        """Compute the gradients of one ray's samples, from the last to the first."""
        first, last = span(rays, ray, densities.shape[0])
        through = left[ray]
        behind = through * c_left[ray]
        is_dark = through < threshold
        far = c_depth[ray]
        c = lang.Vector([0.0] * max(n_channels, 1), dt=real)
        for k in lang.static(range(n_channels)):
            c[k] = c_color[ray, k]
        for back in range(last - first):
            i = last - 1 - back
            weight = weights[i]
            if weight != real(0.0):
                is_dark = False
            gain = far * t[i]
            if lang.static(has_weights):
                gain += c_weights[i]
            for k in lang.static(range(n_channels)):
                gain += c[k] * colors[i * n_channels + k]
                slope_colors[i * n_channels + k] = weight * c[k]
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
        colors: array,
        t: array,
        steps: array,
        rays: array,
        weights: array,
        left: array,
        c_color: array,
        c_depth: array,
        c_left: array,
        c_weights: array,
        threshold: real,
        slope_densities: array,
        slope_colors: array,
        slope_t: array,
        slope_steps: array,
    ):
        for place in range(rays.shape[0]):
            sweep(
                densities,
                colors,
                t,
                steps,
                rays,
                threshold,
                weights,
                left,
                c_color,
                c_depth,
                c_left,
                c_weights,
                slope_densities,
                slope_colors,
                slope_t,
                slope_steps,
                rays.shape[0] - 1 - place,
                by_weights,
                by_place,
            )

    @lang.kernel
    def by_hand(
        densities: array,
        colors: array,
        t: array,
        steps: array,
        rays: array,
        weights: array,
        left: array,
        grad_color: array,
        grad_depth: array,
        grad_left: array,
        grad_weights: array,
        threshold: real,
        grad_densities: array,
        grad_colors: array,
        grad_t: array,
        grad_steps: array,
    ):
        for place in range(rays.shape[0]):
            sweep(
                densities,
                colors,
                t,
                steps,
                rays,
                threshold,
                weights,
                left,
                grad_color,
                grad_depth,
                grad_left,
                grad_weights,
                grad_densities,
                grad_colors,
                grad_t,
                grad_steps,
                rays.shape[0] - 1 - place,
                True,
                True,
            )

    return Composite(value, pull, by_hand)


def build_absorption(lang: ModuleType, *, fp: str) -> Any:
    """Build the function `absorbed(x)`, which returns 1 - exp(-x) and exp(-x).

    For small x the difference would lose digits, so a series is used. In float64 its coefficients are integers over a
    factorial, since literals are rounded to float32.
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
