"""Memory: rules that read the source."""

from .row import Row

ROWS = (
    Row(
        "TS101",
        """
        An engine's reverse mode reads arrays as they are *after* the forward pass. A value that was used and then
        overwritten is gone: the derivative is computed at another value, with no error. tinsmith's gradient works on
        a copy and restores the values step by step, which costs memory and a little time.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                s = y[i] * x[i]
                y[i] = x[i]
                y[i] += s
        """,
        """
        def k(x: A, start: A, y: A):
            for i in x:
                y[i] = x[i] + start[i] * x[i]
        """,
        words="Write each element once; read the earlier value from another array.",
    ),
    Row(
        "TS102",
        """
        After `y[i] = sin(y[i])` the reverse kernel reads the new `y[i]` where the derivative needs the old one:
        cos(sin y) instead of cos y. tinsmith keeps the old values.
        """,
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = ti.sin(y[i])
        """,
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = ti.sin(x[i])
        """,
        words="A linear update, `y[i] = 0.5 * y[i] + x[i]`, does not need the old value and is not reported.",
    ),
    Row(
        "TS103",
        """
        The spec says that an array is an input, and the kernel writes it. torch does not know that, so a value that
        autograd saved may change unnoticed. Such an op raises an error when it is made.
        """,
        """
        @ts.op("x[n], w[n] -> y[n]")
        @ti.kernel
        def k(x: A, w: A, y: A):
            for i in x:
                w[i] = 0.0
                y[i] = x[i]
        """,
        """
        @ts.op("x[n] -> y[n], w[n]")
        @ti.kernel
        def k(x: A, w: A, y: A):
            for i in x:
                w[i] = 0.0
                y[i] = x[i]
        """,
        words="An array that the kernel writes is an output, or scratch.",
    ),
    Row(
        "TS104",
        """
        Outputs start at zero, so a kernel that reads one first gets zeros, or with `init={...: "empty"}` whatever
        was in that memory. Most often the loops are in the wrong order.
        """,
        """
        @ts.op("x[n] -> y[n], z[n]")
        @ti.kernel
        def k(x: A, y: A, z: A):
            for i in x:
                z[i] = y[i] * x[i]
            for i in x:
                y[i] = x[i]
        """,
        """
        @ts.op("x[n] -> y[n], z[n]")
        @ti.kernel
        def k(x: A, y: A, z: A):
            for i in x:
                y[i] = x[i]
            for i in x:
                z[i] = y[i] * x[i]
        """,
        words="What scales an output that nobody wrote, `y[i] = y[i] * 0.9 + x[i]`, is named too: a sum may begin "
        "at zero, a product with it is a mistake. What an earlier kernel of a chain wrote is there.",
    ),
    Row(
        "TS105",
        """
        The outermost loop of a kernel runs in parallel. If its iterations store to one element, the last store remains,
        in an order that changes from run to run. `y[None] = y[None] + x[i]` loses additions; `y[None] += x[i]` is
        atomic and does not. `ts.op` refuses such a kernel. Where an index or a condition depends on data, iterations
        may store to one element: that is a warning, and an op runs the loop in order on the CPU.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[None] = y[None] + x[i]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[None] += x[i]
        """,
    ),
    Row(
        "TS106",
        """
        An iteration reads an element that another one writes: whether it gets the old or the new value depends on
        timing. A loop whose iterations must run in order has to be marked as serial. `ts.op` refuses such a kernel.
        """,
        """
        def k(x: A, y: A):
            for i in range(x.shape[0] - 1):
                y[i + 1] = y[i] + x[i]
        """,
        """
        def k(x: A, y: A):
            for _ in range(1):
                for i in range(x.shape[0] - 1):
                    y[i + 1] = y[i] + x[i]
        """,
        words="Inside a loop of one iteration a loop runs in order, as after `ti.loop_config(serialize=True)`.",
    ),
    Row(
        "TS107",
        """
        The reverse kernel decides again which branch to take and which element to use, from the final content of
        the array. If the kernel changed it, the reverse pass takes another path than the forward pass.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                if y[i] < 0.5:
                    y[i] = x[i]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                if x[i] < 0.5:
                    y[i] = x[i]
        """,
    ),
    Row(
        "TS108",
        """
        No engine reverses the order of a kernel's outermost loop. If state is carried from one iteration to the
        next, the gradient has to run backwards, and does not: it is wrong on both engines, with no error.
        tinsmith's gradient runs backwards.
        """,
        """
        def k(x: A, y: A):
            ti.loop_config(serialize=True)
            for i in range(x.shape[0] - 1):
                y[i + 1] = 2.0 * y[i] + x[i]
        """,
        """
        def k(x: A, y: A):
            for _ in range(1):
                for i in range(x.shape[0] - 1):
                    y[i + 1] = 2.0 * y[i] + x[i]
        """,
        words="For an engine's own reverse mode, put the loop into a loop of one iteration.",
    ),
    Row(
        "TS109",
        """
        Engines do not check indices in an ordinary launch: other memory is read or overwritten, and the gradient is
        added to other memory. An index is reported if its loop takes it outside for every size of the array. An index
        that a branch guards, or that depends on data, is left to the sanitizer (TS604) and to `check_bounds=True`. A
        negative index does not count from the end as in Python.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i + 1] - x[i]
        """,
        """
        def k(x: A, y: A):
            for i in range(x.shape[0] - 1):
                y[i] = x[i + 1] - x[i]
        """,
    ),
)
