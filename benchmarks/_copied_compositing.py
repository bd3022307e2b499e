"""The compositing kernel that many people copy, corrected: our own implementation of the idea as we understand it.

Known from taichi-nerfs, and written so that the engine can differentiate it: what shines through to each sample is an
array, so that nothing is carried by a loop, and a ray's sums are added into its outputs, sample by sample. There, what
shines through behind a ray's last sample is written where the next ray begins, which is a race: rays run in parallel,
and gradients are off by a tenth. Here each ray has count + 1 elements of its own, which is all that is changed.
"""


def copied(lang):
    """Build the kernel for an engine. Its arrays have one float type; `through` is scratch of s + n zeros."""
    array = lang.types.ndarray()

    @lang.kernel
    def composite(
        densities: array,
        colors: array,
        t: array,
        steps: array,
        rays: array,
        through: array,
        color: array,
        opacity: array,
        depth: array,
        weights: array,
    ):
        for ray in range(rays.shape[0]):
            first = rays[ray, 0]
            slot = first + ray
            through[slot] = 1.0
            for i in range(rays[ray, 1]):
                alpha = 1.0 - lang.exp(-densities[first + i] * steps[first + i])
                weight = alpha * through[slot + i]
                for k in lang.static(range(3)):
                    color[ray, k] += weight * colors[first + i, k]
                depth[ray] += weight * t[first + i]
                opacity[ray] += weight
                weights[first + i] = weight
                through[slot + i + 1] = through[slot + i] * (1.0 - alpha)

    return composite
