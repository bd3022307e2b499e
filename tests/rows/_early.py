"""Rows with real functions, which may return before their end."""

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(9), d.zeros(9, 2)))
def returns_from_branches(lang, real):
    @lang.real_func
    def kind(v: real) -> real:
        if v > 1:
            return 2.0
        elif v > 0:
            w = v * 3
            if w > 1:
                return w
            w += 1
            return w * 10
        x = v * v
        if x > 2:
            return -x
        return x + 0.25

    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=real, ndim=1), y: lang.types.ndarray(dtype=real, ndim=2)):
        for i in x:
            y[i, 0] = kind(x[i]) + kind(x[i] * 0.5) * 100
            y[i, 1] = kind(x[i]) if x[i] > -1 else kind(-x[i])

    return kernel


@ROWS.row(lambda d: (d(9), d.zeros(9)))
def returns_from_loops(lang, real):
    @lang.real_func
    def first_above(x: lang.types.ndarray(dtype=real, ndim=1), limit: real) -> int:
        for i in range(x.shape[0]):
            if x[i] < -1.5:
                continue
            k = 0
            while k < 3:
                k += 1
                if x[i] * k > limit:
                    return i * 10 + k
            if i == 7:
                return -1
        return -2

    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=real, ndim=1), y: lang.types.ndarray(dtype=real, ndim=1)):
        for i in x:
            y[i] = first_above(x, x[i] + 1)

    return kernel
