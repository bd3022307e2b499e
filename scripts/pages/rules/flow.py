"""Control flow."""

from .row import Row

ROWS = (
    Row(
        "TS201",
        """
        Engines differentiate loops at a kernel's top level, or statements, but not both side by side: statements
        beside the loops have no gradient, or the kernel is refused.
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
        Neither engine differentiates a `while`. tinsmith does: a counter keeps how often it ran.
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
        Neither engine differentiates a loop that is left early; the refusal names no line. tinsmith's gradient goes
        back from where the loop was left.
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
        words="For an engine's own reverse mode, a number that says whether the loop still counts.",
    ),
    Row(
        "TS204",
        """
        To reverse a loop that carries a value Taichi keeps the value of each iteration on a stack of 32 entries.
        The 33rd iteration writes outside, and the process dies, or the gradient is wrong. tinsmith's tape has
        exactly the size it needs.
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
)
