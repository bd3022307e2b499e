"""Numbers."""

from .row import Row

ROWS = (
    Row(
        "TS301",
        """
        A variable in a kernel has the type of its first value. `0` makes it an integer, and every float that is
        assigned later is truncated, in values and gradients. A float that is stored to an array of integers, as by
        `pixels[i] = 255 * v`, may be meant: it is a warning. `int(255 * v)` says so.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                n = 0
                n += 0.5 * x[i]
                y[i] = n
        """,
        """
        def k(x: A, y: A):
            for i in x:
                n = 0.0
                n += 0.5 * x[i]
                y[i] = n
        """,
    ),
    Row(
        "TS302",
        """
        A cast to an integer has derivative 0 almost everywhere, so no gradient passes through it. That is correct, but
        often not intended. An index computed from a float is not reported: an index cannot have a gradient.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = int(x[i]) * 0.5
        """,
        """
        def k(x: A, y: A):
            for i in x:
                j = int(x[i])
                y[i] = x[j] * 0.5
        """,
    ),
    Row(
        "TS303",
        """
        The derivative of a root at 0 is infinite, and 0 times infinity is NaN: one element at such a point makes
        the gradient of every sum NaN. With `select` this happens even on the side that is not taken. Gradients that
        tinsmith generates follow torch's [conventions](../conventions.md): a side that was not taken, or an element
        without an incoming gradient, gives no NaN. An engine's own reverse mode does.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.select(x[i] > 0.0, ti.sqrt(x[i]), 0.0)
        """,
        """
        def k(x: A, y: A):
            for i in x:
                if x[i] > 0.0:
                    y[i] = ti.sqrt(x[i])
        """,
        words="Or keep it away: `ti.sqrt(x[i] * x[i] + 1e-6)`, `v.norm(1e-8)`. Of `(x[a] - x[b]).norm()` nothing is "
        "said where the ends are\ndifferent elements: their numbers come from arrays, differ by a constant, or "
        "stand under `if a != b`. Nor is it of `v.norm()` under\n`if v.norm_sqr() > 1e-12`. Under `if v.norm() > 1e-6` "
        "Taichi's own gradient may still be NaN, because Taichi computes both norms at once.",
    ),
    Row(
        "TS304",
        """
        Half precision has 11 bits: 2048 + 1 is 2048. A sum of many small numbers stops growing, and so does a gradient
        that is summed in half precision.
        """,
        """
        def k(x: A, y: ti.types.ndarray(dtype=ti.f16, ndim=1)):
            for i in x:
                y[0] += x[i]
        """,
        """
        def k(x: A, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            for i in x:
                y[0] += x[i]
        """,
    ),
    Row(
        "TS305",
        """
        A literal has the engine's default precision, float32 unless `init(default_fp=...)` sets another, and the
        variable keeps it: a sum over float64 arrays loses half of its digits.
        """,
        """
        def k(x: F64[1], y: F64[1]):
            for i in y:
                s = 0.0
                for j in range(x.shape[0]):
                    s += x[j]
                y[i] = s
        """,
        """
        def k(x: F64[1], y: F64[1]):
            for i in y:
                s = ti.f64(0.0)
                for j in range(x.shape[0]):
                    s += x[j]
                y[i] = s
        """,
        words="Or start the engine in float64: `ts.init(default_fp=ti.f64)`.",
    ),
    Row(
        "TS306",
        """
        Python, and both engines at run time, round `//` down: `-3 // 2` is -2, and `-3 % 2` is 1. Where an engine knows
        both integers at compile time, it rounds towards zero: -1 and -1. So an index that wraps around is wrong
        if its offset is a known number. Ops, and layers whose gradient is not the engine's, follow Python's rule,
        if tinsmith can analyze the kernel; kernels that are called directly do not.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                step = 3
                y[i] = x[i] * (-step // 2)
        """,
        """
        def k(x: A, y: A):
            for i in x:
                step = ti.static(3)
                y[i] = x[i] * (-step // 2)
        """,
        words="With `ti.static`, Python divides.",
    ),
)
