"""Rows with loops in loops, several top-level loops, scratch between them, recurrences and chains."""

import torch

import tinsmith as ts
from cases._case import case


@case(lambda draw: (draw(8), draw(3)), lambda x, k: torch.conv1d(x[None, None], k[None, None])[0, 0])
def convolution(lang, real):
    @ts.op("x[n], k[m] -> y[n - m + 1]")
    @lang.kernel
    def convolution(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return convolution


@case(lambda draw: (draw(3, 4), draw(4, 2)), lambda a, b: a @ b)
def matrix_product(lang, real):
    @ts.op("a[h, k], b[k, w] -> c[h, w]")
    @lang.kernel
    def matrix_product(a: lang.types.ndarray(ndim=2), b: lang.types.ndarray(ndim=2), c: lang.types.ndarray(ndim=2)):
        for i, j in lang.ndrange(a.shape[0], b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total

    return matrix_product


def _laplacian(u):
    inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1] ** 2
    return torch.nn.functional.pad(inner, (1, 1, 1, 1))


@case(lambda draw: (draw(5, 4),), _laplacian)
def laplacian(lang, real):
    @ts.op("u[h, w] -> y[h, w]")
    @lang.kernel
    def laplacian(u: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        for i, j in lang.ndrange((1, u.shape[0] - 1), (1, u.shape[1] - 1)):
            y[i, j] = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j] * u[i, j]

    return laplacian


@case(lambda draw: (draw(3, 5),), lambda x: x.prod(dim=1))
def row_products(lang, real):
    @ts.op("x[h, w] -> y[h]")
    @lang.kernel
    def row_products(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            product = 1.0
            for j in range(x.shape[1]):
                product = product * x[i, j]
            y[i] = product

    return row_products


def _composited(alpha, color):
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha[:, :-1]], 1), 1)
    return (through * alpha * color).sum(1)


@case(lambda draw: (draw(3, 5, low=0.05, high=0.9), draw(3, 5)), _composited)
def compositing(lang, real):
    @ts.op("alpha[ray, sample], color[ray, sample] -> y[ray]")
    @lang.kernel
    def compositing(
        alpha: lang.types.ndarray(ndim=2), color: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)
    ):
        for ray in range(alpha.shape[0]):
            through = 1.0
            total = 0.0
            for sample in range(alpha.shape[1]):
                total += through * alpha[ray, sample] * color[ray, sample]
                through = through * (1.0 - alpha[ray, sample])
            y[ray] = total

    return compositing


def _distances(p):
    return torch.sqrt((p[:, None] - p[None]).pow(2).sum(-1) + 0.01)


@case(lambda draw: (draw(4, 2),), _distances)
def pairwise_distances(lang, real):
    @ts.op("p[n, d] -> y[n, n]")
    @lang.kernel
    def pairwise_distances(p: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        for i in range(p.shape[0]):
            for j in range(p.shape[0]):
                total = 0.01
                for k in range(p.shape[1]):
                    total += (p[i, k] - p[j, k]) ** 2
                y[i, j] = lang.sqrt(total)

    return pairwise_distances


@case(lambda draw: (draw(6),), lambda x: torch.sin(x * x))
def two_loops(lang, real):
    @ts.op("x[n] -> y[n]", scratch="h[n]")
    @lang.kernel
    def two_loops(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            h[i] = x[i] * x[i]
        for i in x:
            y[i] = lang.sin(h[i])

    return two_loops


@case(lambda draw: (draw(6),), lambda x: torch.softmax(x, 0))
def softmax(lang, real):
    @ts.op("x[n] -> y[n]", scratch="total[]")
    @lang.kernel
    def softmax(x: lang.types.ndarray(), y: lang.types.ndarray(), total: lang.types.ndarray(ndim=0)):
        for i in x:
            total[None] += lang.exp(x[i])
        for i in x:
            y[i] = lang.exp(x[i]) / total[None]

    return softmax


def _leaky(x, decay):
    rows, state = [], torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        state = decay * state * state + x[:, t]
        rows.append(torch.sin(state))
    return torch.stack(rows, 1)


@case(lambda draw: (draw(3, 5), draw(1, low=0.2, high=0.8)), lambda x, decay: _leaky(x, decay[0]))
def scratch_recurrence(lang, real):
    @ts.op("x[h, t], decay[1] -> y[h, t]", scratch="state[h, t + 1]")
    @lang.kernel
    def scratch_recurrence(
        x: lang.types.ndarray(ndim=2),
        decay: lang.types.ndarray(ndim=1),
        state: lang.types.ndarray(ndim=2),
        y: lang.types.ndarray(ndim=2),
    ):
        for i in range(x.shape[0]):
            for t in range(x.shape[1]):
                state[i, t + 1] = decay[0] * state[i, t] * state[i, t] + x[i, t]
                y[i, t] = lang.sin(state[i, t + 1])

    return scratch_recurrence


def _steps(u, steps):
    rows = [u]
    for _ in range(steps):
        rows.append(rows[-1] + 0.1 * rows[-1] ** 2)
    return torch.stack(rows)


@case(lambda draw: (draw(4),), lambda u: _steps(u, 3))
def output_recurrence(lang, real):
    @ts.op("u[n] -> path[4, n]")
    @lang.kernel
    def output_recurrence(u: lang.types.ndarray(ndim=1), path: lang.types.ndarray(ndim=2)):
        for i in range(u.shape[0]):
            path[0, i] = u[i]
        for _ in range(1):
            for t in range(3):
                for i in range(u.shape[0]):
                    path[t + 1, i] = path[t, i] + 0.1 * path[t, i] * path[t, i]

    return output_recurrence


@case(lambda draw: (draw(5), draw(5)), lambda x, k: torch.sin(x * k) * x)
def chained(lang, real):
    @lang.kernel
    def product(x: lang.types.ndarray(), k: lang.types.ndarray(), h: lang.types.ndarray()):
        for i in x:
            h[i] = x[i] * k[i]

    @lang.kernel
    def wave(h: lang.types.ndarray(), x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in h:
            y[i] = lang.sin(h[i]) * x[i]

    return ts.chain("x[n], k[n] -> y[n]", [product, wave], scratch="h[n]")


def _network(x, a, b):
    hidden = torch.tanh(a @ x)
    return (b @ hidden) ** 2


@case(lambda draw: (draw(3), draw(4, 3), draw(2, 4)), _network)
def chained_network(lang, real):
    @lang.kernel
    def multiply(x: lang.types.ndarray(ndim=1), a: lang.types.ndarray(ndim=2), z: lang.types.ndarray(ndim=1)):
        for i in z:
            for j in range(x.shape[0]):
                z[i] += a[i, j] * x[j]

    @lang.kernel
    def activate(z: lang.types.ndarray(ndim=1), hidden: lang.types.ndarray(ndim=1)):
        for i in z:
            hidden[i] = lang.tanh(z[i])

    @lang.kernel
    def finish(
        hidden: lang.types.ndarray(ndim=1),
        b: lang.types.ndarray(ndim=2),
        q: lang.types.ndarray(ndim=1),
        y: lang.types.ndarray(ndim=1),
    ):
        for i in q:
            for j in range(hidden.shape[0]):
                q[i] += b[i, j] * hidden[j]
        for i in y:
            y[i] = q[i] * q[i]

    return ts.chain("x[n], a[m, n], b[k, m] -> y[k]", [multiply, activate, finish], scratch="z[m], hidden[m], q[k]")


@case(lambda draw: (draw(3, 4), draw(2, 4)), lambda a, b: (a[:, None] * b[None]).pow(2).sum(-1))
def pairs_of_rows(lang, real):
    @ts.op("a[n, d], b[m, d] -> y[n, m]", scratch="h[n, m, d]")
    @lang.kernel
    def pairs_of_rows(
        a: lang.types.ndarray(ndim=2),
        b: lang.types.ndarray(ndim=2),
        h: lang.types.ndarray(ndim=3),
        y: lang.types.ndarray(ndim=2),
    ):
        for i, j, k in h:
            h[i, j, k] = a[i, k] * b[j, k]
        for i, j in lang.ndrange(a.shape[0], b.shape[0]):
            for k in range(a.shape[1]):
                y[i, j] += h[i, j, k] * h[i, j, k]

    return pairs_of_rows
