"""Rows that read and write through indices: gathers, scatters, ragged segments, images."""

import torch

import tinsmith as ts
from cases._case import case


@case(lambda draw: (draw(6), draw(6)), lambda a, b: (a * b).sum())
def dot(lang, real):
    @ts.op("a[n], b[n] -> s[]")
    @lang.kernel
    def dot(a: lang.types.ndarray(), b: lang.types.ndarray(), s: lang.types.ndarray(ndim=0)):
        for i in a:
            s[None] += a[i] * b[i]

    return dot


@case(lambda draw: (draw(6),), lambda x: torch.stack([-(x * x).sum(), torch.sin(x).sum()]))
def atomics(lang, real):
    @ts.op("x[n] -> y[2]")
    @lang.kernel
    def atomics(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[0] -= x[i] * x[i]
            lang.atomic_add(y[1], lang.sin(x[i]))

    return atomics


@case(lambda draw: (draw(5), draw.integers(7, below=5)), lambda x, index: x[index.long()] ** 2)
def gather(lang, real):
    @ts.op("x[n], index[m]: i32 -> y[m]")
    @lang.kernel
    def gather(x: lang.types.ndarray(), index: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in index:
            y[i] = x[index[i]] * x[index[i]]

    return gather


@case(
    lambda draw: (draw(7), draw.integers(7, below=4)),
    lambda x, index: torch.zeros(4, dtype=x.dtype).index_add(0, index.long(), x**3),
)
def scatter(lang, real):
    @ts.op("x[n], index[n]: i32 -> y[4]")
    @lang.kernel
    def scatter(x: lang.types.ndarray(), index: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[index[i]] += x[i] * x[i] * x[i]

    return scatter


@case(
    lambda draw: (draw(4, 3), draw.integers(6, below=4, dtype=torch.int64)),
    lambda table, word: table[word] * torch.sin(table[word]),
)
def embedding(lang, real):
    @ts.op("table[v, d], word[m]: i64 -> y[m, d]")
    @lang.kernel
    def embedding(table: lang.types.ndarray(ndim=2), word: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=2)):
        for i, k in y:
            v = table[word[i], k]
            y[i, k] = v * lang.sin(v)

    return embedding


def _segments(x, start):
    ends = start.tolist()
    return torch.stack([(x[a:b] ** 2).sum() for a, b in zip(ends[:-1], ends[1:], strict=True)])


@case(lambda draw: (draw(8), torch.tensor([0, 3, 3, 4, 8], dtype=torch.int32)), _segments)
def segments(lang, real):
    @ts.op("x[n], start[m]: i32 -> y[m - 1]")
    @lang.kernel
    def segments(x: lang.types.ndarray(), start: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            total = 0.0
            for j in range(start[i], start[i + 1]):
                total += x[j] * x[j]
            y[i] = total

    return segments


def _sampled(image, place):
    corner = place.detach().floor()
    weight, (row, column) = place - corner, corner.long().T
    a, b = weight.T
    return (
        image[row, column] * (1 - a) * (1 - b)
        + image[row + 1, column] * a * (1 - b)
        + image[row, column + 1] * (1 - a) * b
        + image[row + 1, column + 1] * a * b
    )


@case(lambda draw: (draw(5, 4), draw(6, 2, low=0.1, high=2.9)), _sampled)
def bilinear(lang, real):
    @ts.op("image[h, w], place[n, 2] -> y[n]")
    @lang.kernel
    def bilinear(image: lang.types.ndarray(ndim=2), place: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in y:
            row = int(lang.floor(place[i, 0]))
            column = int(lang.floor(place[i, 1]))
            a = place[i, 0] - row
            b = place[i, 1] - column
            y[i] = (
                image[row, column] * (1 - a) * (1 - b)
                + image[row + 1, column] * a * (1 - b)
                + image[row, column + 1] * (1 - a) * b
                + image[row + 1, column + 1] * a * b
            )

    return bilinear


def _splatted(place, color, h, w):
    rows = torch.arange(h).to(place)[:, None, None]
    columns = torch.arange(w).to(place)[None, :, None]
    distance = (rows - place[:, 0]) ** 2 + (columns - place[:, 1]) ** 2
    return (color * torch.exp(-0.5 * distance)).sum(-1)


@case(lambda draw: (draw(3, 2, low=0.5, high=2.5), draw(3)), _splatted, h=4, w=5)
def splat(lang, real):
    @ts.op("place[n, 2], color[n] -> image[h, w]")
    @lang.kernel
    def splat(place: lang.types.ndarray(ndim=2), color: lang.types.ndarray(ndim=1), image: lang.types.ndarray(ndim=2)):
        for i, j, k in lang.ndrange(image.shape[0], image.shape[1], place.shape[0]):
            a = i - place[k, 0]
            b = j - place[k, 1]
            image[i, j] += color[k] * lang.exp(-0.5 * (a * a + b * b))

    return splat


@case(lambda draw: (draw(3), 2), lambda x, times: x.repeat_interleave(times) ** 2)
def upsampled(lang, real):
    @ts.op("x[n] -> y[n * times]")
    @lang.kernel
    def upsampled(x: lang.types.ndarray(), times: lang.i32, y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i // times] * x[i // times]

    return upsampled
