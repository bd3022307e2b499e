"""The kernels whose gradients are timed, in a natural form, and gradients of them written by hand.

A pair each: `lang` is the engine's module. The gradient by hand is the bar, so it is written with what is known of
the function as a whole, not line by line. It gets the op's arrays by name, `grad_<output>`, and fills `grad_<input>`.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from typing import Any

STEP = 0.01
"""Seconds that a step of the chain takes."""


# Light along rays -------------------------------------------------------------------------
def compositing(lang: Any) -> Any:
    """Build the kernel that composites the light of each ray from front to back; `t` is the transmittance so far."""
    array = lang.types.ndarray()

    @lang.kernel
    def compositing(density: array, thickness: array, color: array, light: array):
        for r in range(density.shape[0]):
            t = 1.0
            for s in range(density.shape[1]):
                through = lang.exp(-density[r, s] * thickness[r, s])
                weight = t * (1.0 - through)
                for c in lang.static(range(3)):
                    light[r, c] += weight * color[r, s, c]
                t *= through

    return compositing


def compositing_by_hand(lang: Any) -> Any:
    """Build the gradient of `compositing` without a tape and with one `exp` a sample: light behind a sample is all
    light minus that in front of it.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def compositing_by_hand(
        density: array,
        thickness: array,
        color: array,
        light: array,
        grad_light: array,
        grad_density: array,
        grad_thickness: array,
        grad_color: array,
    ):
        for r in range(density.shape[0]):
            red, green, blue = grad_light[r, 0], grad_light[r, 1], grad_light[r, 2]
            behind = red * light[r, 0] + green * light[r, 1] + blue * light[r, 2]
            t = 1.0
            for s in range(density.shape[1]):
                through = lang.exp(-density[r, s] * thickness[r, s])
                weight = t * (1.0 - through)
                grad_color[r, s, 0] = weight * red
                grad_color[r, s, 1] = weight * green
                grad_color[r, s, 2] = weight * blue
                here = red * color[r, s, 0] + green * color[r, s, 1] + blue * color[r, s, 2]
                behind -= weight * here
                t *= through
                depth = t * here - behind
                grad_density[r, s] = depth * thickness[r, s]
                grad_thickness[r, s] = depth * density[r, s]

    return compositing_by_hand


# A chain of masses and springs ------------------------------------------------------------
def chain(lang: Any) -> Any:
    """Build the kernel of masses in a row with springs between neighbors, which stores all positions and speeds by time
    and mass.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def chain(start: array, speed: array, stiffness: array, x: array, v: array):
        for i in range(start.shape[0]):
            x[0, i], v[0, i] = start[i], speed[i]
        lang.loop_config(serialize=True)
        for t in range(x.shape[0] - 1):
            for i in range(start.shape[0]):
                force = 0.0
                if i > 0:
                    force -= stiffness[i] * (x[t, i] - x[t, i - 1] - 1.0)
                if i < start.shape[0] - 1:
                    force += stiffness[i + 1] * (x[t, i + 1] - x[t, i] - 1.0)
                v[t + 1, i] = v[t, i] + STEP * force
                x[t + 1, i] = x[t, i] + STEP * v[t + 1, i]

    return chain


def chain_by_hand(lang: Any) -> Any:
    """Build the gradient of `chain`, from the last step to the first. All states are stored, so nothing is
    recomputed.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def chain_by_hand(
        stiffness: array,
        x: array,
        grad_x: array,
        grad_v: array,
        grad_start: array,
        grad_speed: array,
        grad_stiffness: array,
    ):
        lang.loop_config(serialize=True)
        for back in range(x.shape[0] - 1):
            t = x.shape[0] - 2 - back
            for i in range(stiffness.shape[0]):
                grad_x[t, i] += grad_x[t + 1, i]
                grad_v[t + 1, i] += STEP * grad_x[t + 1, i]
                grad_v[t, i] += grad_v[t + 1, i]
                if i > 0:  # the spring before this mass
                    pull = STEP * (grad_v[t + 1, i - 1] - grad_v[t + 1, i])
                    grad_stiffness[i] += pull * (x[t, i] - x[t, i - 1] - 1.0)
                    grad_x[t, i] += pull * stiffness[i]
                    grad_x[t, i - 1] -= pull * stiffness[i]
        for i in range(stiffness.shape[0]):
            grad_start[i], grad_speed[i] = grad_x[0, i], grad_v[0, i]

    return chain_by_hand


def chain_in_place(lang: Any, steps: int) -> Any:
    """Build the kernel of masses in a row that keeps only the last positions and speeds."""
    array = lang.types.ndarray()

    @lang.kernel
    def chain_in_place(start: array, speed: array, stiffness: array, x: array, v: array):
        for i in range(start.shape[0]):
            x[i], v[i] = start[i], speed[i]
        lang.loop_config(serialize=True)
        for _ in range(steps):
            for i in range(start.shape[0]):
                force = 0.0
                if i > 0:
                    force -= stiffness[i] * (x[i] - x[i - 1] - 1.0)
                if i < start.shape[0] - 1:
                    force += stiffness[i + 1] * (x[i + 1] - x[i] - 1.0)
                v[i] += STEP * force
            for i in range(start.shape[0]):
                x[i] += STEP * v[i]

    return chain_in_place


def chain_that_remembers(lang: Any) -> Any:
    """Build the kernel of masses in a row that also stores the positions of all times in `path`, for a hand-written
    gradient.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def chain_that_remembers(start: array, speed: array, stiffness: array, x: array, v: array, path: array):
        for i in range(start.shape[0]):
            path[0, i], v[i] = start[i], speed[i]
        lang.loop_config(serialize=True)
        for t in range(path.shape[0] - 1):
            for i in range(start.shape[0]):
                force = 0.0
                if i > 0:
                    force -= stiffness[i] * (path[t, i] - path[t, i - 1] - 1.0)
                if i < start.shape[0] - 1:
                    force += stiffness[i + 1] * (path[t, i + 1] - path[t, i] - 1.0)
                v[i] += STEP * force
                path[t + 1, i] = path[t, i] + STEP * v[i]
        for i in range(start.shape[0]):
            x[i] = path[path.shape[0] - 1, i]

    return chain_that_remembers


def remembered_by_hand(lang: Any) -> Any:
    """Build the gradient of `chain_that_remembers`, from the last step to the first, over the stored positions."""
    array = lang.types.ndarray()

    @lang.kernel
    def remembered_by_hand(
        stiffness: array,
        path: array,
        grad_x: array,
        grad_v: array,
        grad_start: array,
        grad_speed: array,
        grad_stiffness: array,
    ):
        lang.loop_config(serialize=True)
        for back in range(path.shape[0] - 1):
            t = path.shape[0] - 2 - back
            for i in range(stiffness.shape[0]):
                grad_v[i] += STEP * grad_x[i]
                if i > 0:  # the spring before this mass
                    pull = STEP * (grad_v[i - 1] - grad_v[i])
                    grad_stiffness[i] += pull * (path[t, i] - path[t, i - 1] - 1.0)
                    grad_x[i] += pull * stiffness[i]
                    grad_x[i - 1] -= pull * stiffness[i]
        for i in range(stiffness.shape[0]):
            grad_start[i], grad_speed[i] = grad_x[i], grad_v[i]

    return remembered_by_hand


# Online softmax ---------------------------------------------------------------------------
def online_softmax(lang: Any) -> Any:
    """Build the kernel of a softmax by rows that computes the maximum and the sum relative to it in one sweep."""
    array = lang.types.ndarray()

    @lang.kernel
    def online_softmax(x: array, y: array):
        for r in range(x.shape[0]):
            largest, total = x[r, 0], 1.0
            for j in range(1, x.shape[1]):
                larger = lang.max(largest, x[r, j])
                total = total * lang.exp(largest - larger) + lang.exp(x[r, j] - larger)
                largest = larger
            for j in range(x.shape[1]):
                y[r, j] = lang.exp(x[r, j] - largest) / total

    return online_softmax


def softmax_by_hand(lang: Any) -> Any:
    """Build the gradient of `online_softmax` that exploits that the result does not depend on `largest`.

    So `largest` gets no cotangent, and the cotangent of the rescaled sum is one number for a whole row.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def softmax_by_hand(x: array, grad_y: array, grad_x: array):
        for r in range(x.shape[0]):
            largest, total = x[r, 0], 1.0
            for j in range(1, x.shape[1]):
                larger = lang.max(largest, x[r, j])
                total = total * lang.exp(largest - larger) + lang.exp(x[r, j] - larger)
                largest = larger
            grad_total = total - total
            for j in range(x.shape[1]):
                weight = lang.exp(x[r, j] - largest)
                grad_total -= grad_y[r, j] * weight / (total * total)
                grad_x[r, j] = grad_y[r, j] * weight / total
            for j in range(x.shape[1]):
                grad_x[r, j] += grad_total * lang.exp(x[r, j] - largest)

    return softmax_by_hand


def softmax_in_closed_form(lang: Any) -> Any:
    """Build the gradient of softmax from its result alone, without any `exp`: y (g - sum of g y).

    This is a theorem about softmax and not an adjoint of the kernel, so it is shown for comparison, and no target.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def softmax_in_closed_form(y: array, grad_y: array, grad_x: array):
        for r in range(y.shape[0]):
            mean = grad_y[r, 0] * y[r, 0]
            for j in range(1, y.shape[1]):
                mean += grad_y[r, j] * y[r, j]
            for j in range(y.shape[1]):
                grad_x[r, j] = y[r, j] * (grad_y[r, j] - mean)

    return softmax_in_closed_form


# Distortion of ragged rays, as a chain of three ------------------------------------------------


def distortion(lang: Any) -> list[Any]:
    """Build the three kernels of the distortion loss: sums along rays, a term for each sample, and the sum of each
    ray's terms.
    """
    array = lang.types.ndarray()

    @lang.kernel
    def sums_before(w: array, t: array, rays: array, weights: array, moments: array):
        for r in range(rays.shape[0]):
            weight = 0.0
            moment = 0.0
            for s in range(rays[r, 0], rays[r, 1]):
                weights[s] = weight
                moments[s] = moment
                weight += w[s]
                moment += w[s] * t[s]

    @lang.kernel
    def terms_of_samples(w: array, t: array, d: array, weights: array, moments: array, terms: array):
        for s in w:
            terms[s] = 2.0 * w[s] * (t[s] * weights[s] - moments[s]) + w[s] * w[s] * d[s] / 3.0

    @lang.kernel
    def sum_of_terms(terms: array, rays: array, loss: array):
        for r in range(rays.shape[0]):
            total = 0.0
            for s in range(rays[r, 0], rays[r, 1]):
                total += terms[s]
            loss[r] = total

    return [sums_before, terms_of_samples, sum_of_terms]


def distortion_by_hand(lang: Any) -> Any:
    """Build the gradient of all three kernels of `distortion` in one sweep from the last sample to the first."""
    array = lang.types.ndarray()

    @lang.kernel
    def distortion_back(
        w: array,
        t: array,
        d: array,
        rays: array,
        weights: array,
        moments: array,
        grad_loss: array,
        grad_w: array,
        grad_t: array,
        grad_d: array,
    ):
        for r in range(rays.shape[0]):
            g = grad_loss[r]
            behind = 0.0
            moment_behind = 0.0
            for back in range(rays[r, 1] - rays[r, 0]):
                s = rays[r, 1] - 1 - back
                slope = 2.0 * (t[s] * weights[s] - moments[s]) + 2.0 * w[s] * d[s] / 3.0
                grad_d[s] = g * w[s] * w[s] / 3.0
                grad_w[s] = g * slope + behind + moment_behind * t[s]
                grad_t[s] = g * 2.0 * w[s] * weights[s] + moment_behind * w[s]
                behind += g * 2.0 * w[s] * t[s]
                moment_behind -= g * 2.0 * w[s]

    return distortion_back
