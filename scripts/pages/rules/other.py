"""Failed checks, and hygiene."""

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
        An unused parameter is mostly one that should be used. In an op, its gradient is
        zero.
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
        words="A name that begins with `_` marks it as intended.",
    ),
    Row(
        "TS502",
        """
        Lint reads a kernel's source, and that of the engine functions that it calls. If it cannot follow what an
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
        words="A function in the same file is analyzed.",
    ),
    Row(
        "TS503",
        """
        A parameter hides the global of the same name. If every call passes 0, probably the global was meant: the
        kernel runs, and uses 0. Only calls in the file are considered; calls of an op, which omit arguments, are not
        considered.
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
        `atomic_add(y, a) ** 2` adds `a`, squares the earlier value, and drops the square: the intended sum of squares
        is a plain sum. Python raises no error.
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
    Row(
        "TS801",
        """
        The pattern that people copy: `forward` launches a kernel, and `backward` sets `y.grad = dy`, calls
        `kernel.grad(x, y)` and returns `x.grad`. It is wrong in ways that nothing reports
        ([each one, run](../../start/by-hand.md)). The finding lists those that apply to the Function, and the op that
        replaces it: its spec comes from the kernel and from what `forward` allocates, and a `?` stands where they do
        not tell it. It is an *info* if only second derivatives are wrong. Helpers in the same file, kernels that are
        methods, and gradients of fields are followed.
        """,
        """
        @ti.kernel
        def triple(x: A, y: A):
            for i in x:
                y[i] = 3.0 * x[i]


        class Triple(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = torch.zeros_like(x)
                triple(x, y)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                x, y = ctx.saved_tensors
                y.grad = dy.contiguous()
                triple.grad(x, y)
                return x.grad
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def triple(x: A, y: A):
            for i in x:
                y[i] = 3.0 * x[i]
        """,
        words="`triple(x)` replaces `Triple.apply(x)`: [from a Function to an op](../../how-to/autograd-function.md).",
    ),
)
