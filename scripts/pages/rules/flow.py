"""Control flow."""

from .row import Row

ROWS = (
    Row(
        "TS201",
        """
        Engines differentiate either loops or statements at a kernel's top level, but not both: statements
        beside loops have no gradient, or the kernel is refused.
        """,
        """
        def k(x: A, y: A):
            s = x[0] * x[0]
            for i in x:
                y[i] += x[i] * s
        """,
        """
        def k(x: A, y: A):
            for i in x:
                s = x[0] * x[0]
                y[i] += x[i] * s
        """,
    ),
    Row(
        "TS202",
        """
        Neither engine differentiates a `while`. tinsmith does, and counts its iterations.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                j = 0
                while j < i:
                    y[i] += x[j]
                    j += 1
        """,
        """
        def k(x: A, y: A):
            for i in x:
                for j in range(i):
                    y[i] += x[j]
        """,
    ),
    Row(
        "TS203",
        """
        Neither engine differentiates a loop that ends early; the error names no line. tinsmith's gradient goes
        back from where the loop ended.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                for j in range(i):
                    if x[j] > 0.5:
                        break
                    y[i] += x[j]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                on = 1
                for j in range(i):
                    if x[j] > 0.5:
                        on = 0
                    if on == 1:
                        y[i] += x[j]
        """,
        words="For an engine's own reverse mode, use a flag that says whether iterations still count.",
    ),
    Row(
        "TS204",
        """
        To reverse a loop that carries a value, Taichi keeps the value of each iteration on a stack of 32 entries.
        The 33rd iteration writes outside the stack: the process crashes, or the gradient is wrong. tinsmith's tape has
        exactly the size that it needs.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                p = 1.0
                for j in range(40):
                    p = p * x[j]
                y[i] = p
        """,
        """
        def k(x: A, y: A):
            for i in x:
                p = 1.0
                for j in range(8):
                    p = p * x[j]
                y[i] = p
        """,
    ),
    Row(
        "TS205",
        """
        In Python, the variable of a loop is a local that the body may change, until the next iteration gives it its
        next value. Both engines leave `j += 2` out without a word, or end the process on it; they refuse `j = j + 2`.
        In ops and layers the change counts, if tinsmith can analyze the kernel; in kernels that are called directly it
        does not. It skips no iterations anywhere: use a `while` for that.
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    j += 2
                    y[i] += x[j]
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    own_j = j + 2
                    y[i] += x[own_j]
        """,
    ),
)
