"""Pitfall 78: samples along a ray, front to back, until nothing shines through (taichi #2425)."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def with_an_if(lang):
    @ts.op("a[n, m], c[n, m] -> y[n]")
    @lang.kernel
    def composited(a: lang.types.ndarray(ndim=2), c: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(a.shape[0]):
            through = 1.0
            s = 0.0
            for j in range(a.shape[1]):
                if through > 0.05:
                    s += through * a[i, j] * c[i, j]
                    through *= 1.0 - a[i, j]
            y[i] = s

    return composited


def twin(a, c):
    rows = []
    for alphas, colors in zip(a, c, strict=True):
        through, s = torch.ones((), dtype=a.dtype), torch.zeros((), dtype=a.dtype)
        for alpha, color in zip(alphas, colors, strict=True):
            if through > 0.05:
                s = s + through * alpha * color
                through = through * (1 - alpha)
        rows.append(s)
    return torch.stack(rows)


def test_with_an_if(lang64, draw):
    assert_right(with_an_if(lang64), twin, (draw(9, 12, low=0.0, high=0.8), draw(9, 12)))


def test_with_an_if_in_a_batch(lang64, draw):
    assert_right_in_a_batch(with_an_if(lang64), twin, (draw(2, 4, 12, low=0.0, high=0.8), draw(2, 4, 12)))


def test_with_an_if_forwards(lang64, draw):
    assert_right_forwards(with_an_if(lang64), twin, (draw(9, 12, low=0.0, high=0.8), draw(9, 12)))


def test_with_a_break_and_colors(lang64, draw):
    """The kernel that a person would write."""

    @ts.op("a[n, m], c[n, m, 3] -> y[n, 3]")
    @lang64.kernel
    def composited(
        a: lang64.types.ndarray(ndim=2),
        c: lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=2),
        y: lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=1),
    ):
        for i in range(a.shape[0]):
            through = 1.0
            color = lang64.Vector([0.0, 0.0, 0.0])
            for j in range(a.shape[1]):
                if through < 0.05:
                    break
                color += through * a[i, j] * c[i, j]
                through *= 1.0 - a[i, j]
            y[i] = color

    def colors(a, c):
        return torch.stack([twin(a, c[..., k]) for k in range(3)], -1)

    assert_right(composited, colors, (draw(9, 12, low=0.0, high=0.8), draw(9, 12, 3)))
