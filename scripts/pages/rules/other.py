"""What could not be looked at, and hygiene."""

from .row import Row

ROWS = (
    Row(
        "TS001",
        """
        The kernels of a file that cannot be read are not checked: `tinsmith check` ends with exit code 2, even if every
        other file is clean.
        """,
        """
        @ti.kernel
        def k(x: A, y: A)
            for i in x:
                y[i] = x[i]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i]
        """,
    ),
    Row(
        "TS002",
        """
        A check that could not run is a finding, so that a report is never clean because a check was skipped: a file
        that fails when `--run` imports it, an example that raises, a part of the check that itself fails. Exit code 2.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i]


        @op.example
        def small():
            return torch.load("no_such_file.pt")
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i]


        @op.example
        def small():
            return torch.rand(4)
        """,
    ),
    Row(
        "TS501",
        """
        A parameter that nothing uses is most often one that was meant to be used. Of an op it has a gradient of
        zeros.
        """,
        """
        def k(x: A, y: A, scale: ti.i32):
            for i in x:
                y[i] = x[i]
        """,
        """
        def k(x: A, y: A, _scale: ti.i32):
            for i in x:
                y[i] = x[i]
        """,
        words="A name that begins with `_` says that it is meant.",
    ),
    Row(
        "TS502",
        """
        Lint reads a kernel's text, and goes into the engine functions that it calls. Where it cannot follow what an
        array is passed to, it cannot check what happens there, and reports that. The same holds for an imported
        function: it may use fields.
        """,
        """
        def make(spread):
            @ti.kernel
            def k(x: A, y: A):
                for i in x:
                    spread(y, x[i])

            return k
        """,
        """
        @ti.func
        def spread(y: ti.template(), v):
            y[0] += v


        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                spread(y, x[i])
        """,
        words="A function that stands where lint finds it is followed.",
    ),
    Row(
        "TS503",
        """
        A parameter hides the global of its name. Where every call gives it 0, most often the global was meant: the
        kernel runs, and works with 0. Calls are those in the file; those of an op, which leave arguments out, are not
        looked at.
        """,
        """
        dt = 0.01


        @ti.kernel
        def k(x: A, y: A, dt: ti.f32):
            for i in x:
                y[i] = x[i] + dt


        def run(x, y):
            k(x, y, 0)
        """,
        """
        dt = 0.01


        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] + dt


        def run(x, y):
            k(x, y)
        """,
    ),
    Row(
        "TS504",
        """
        `atomic_add(y, a) ** 2` adds `a`, squares what was there before, and drops that: the sum of squares that was
        meant is a plain sum. Python raises no error.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], x[i] - 1.0) ** 2
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], (x[i] - 1.0) ** 2)
        """,
    ),
)
