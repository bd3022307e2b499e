"""Rules of the sanitizer and the gradient check."""

from .row import Row

ROWS = (
    Row(
        "TS601",
        """
        Two iterations of a parallel loop access one element, and one of them writes it without an atomic.
        The result depends on the order of the iterations. The sanitizer names the element, the iterations and the
        lines.
        """,
        """
        @ts.op("x[n], where[n]: i32 -> y[n]", races="allow")
        @ti.kernel
        def op(x: A, where: A, y: A):
            for i in x:
                y[where[i]] = x[i]
        """,
        """
        @ts.op("x[n], where[n]: i32 -> y[n]")
        @ti.kernel
        def op(x: A, where: A, y: A):
            for i in x:
                y[where[i]] += x[i]
        """,
        "torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 2, 2], dtype=torch.int32)",
    ),
    Row(
        "TS602",
        """
        An element of an output is read before it is written. It is zero only because the op zeroes its memory; with
        another caller, or `init`, it has another value.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for _ in range(1):
                for i in range(1, x.shape[0]):
                    y[i] = 0.5 * y[i - 1] + x[i]
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for _ in range(1):
                y[0] = x[0]
                for i in range(1, x.shape[0]):
                    y[i] = 0.5 * y[i - 1] + x[i]
        """,
        "torch.tensor([1.0, 2.0, 3.0])",
    ),
    Row(
        "TS603",
        """
        [TS101](TS101.md) and [TS102](TS102.md), seen in a run: with the element, where it was read and where it was
        overwritten. An engine's own reverse mode reads the later value.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i]
                y[i] = ti.sin(y[i]) * y[i]
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = ti.sin(x[i]) * x[i]
        """,
        "torch.tensor([1.0, 2.0])",
    ),
    Row(
        "TS604",
        """
        Compiled kernels do not check whether an index is in its array: they read other memory, and in the reverse
        pass they overwrite it. Negative indices do not count from the end.
        """,
        """
        @ts.op("x[n], k[m]: i32 -> y[m]")
        @ti.kernel
        def op(x: A, k: A, y: A):
            for i in k:
                y[i] = x[k[i]]
        """,
        """
        @ts.op("x[n], k[m]: i32 -> y[m]")
        @ti.kernel
        def op(x: A, k: A, y: A):
            for i in k:
                if 0 <= k[i] < x.shape[0]:
                    y[i] = x[k[i]]
        """,
        "torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 3], dtype=torch.int32)",
    ),
    Row(
        "TS605",
        """
        An integer that does not fit its type wraps around, with no error. This happens mostly to indices of large
        arrays and products of sizes.
        """,
        """
        @ts.op("x[n], k[n]: i32 -> y[n]")
        @ti.kernel
        def op(x: A, k: A, y: A):
            for i in x:
                y[i] = x[i] * (k[i] * k[i])
        """,
        """
        @ts.op("x[n], k[n]: i32 -> y[n]")
        @ti.kernel
        def op(x: A, k: A, y: A):
            for i in x:
                y[i] = x[i] * float(k[i]) * float(k[i])
        """,
        "torch.tensor([1.0, 2.0]), torch.tensor([3, 70_000], dtype=torch.int32)",
    ),
    Row(
        "TS606",
        """
        A NaN is noticed at the end of a program, but first appears earlier. The sanitizer names the operation, the
        iteration and the operands of the first one, in values and in gradients.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = ti.log(x[i])
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = ti.log(ti.max(x[i], 1e-6))
        """,
        "torch.tensor([1.0, -2.0])",
    ),
    Row(
        "TS607",
        """
        An integer division by zero ends the process on one machine and gives an arbitrary number on another.
        """,
        """
        @ts.op("x[n], k[n]: i32 -> y[n]")
        @ti.kernel
        def op(x: A, k: A, y: A):
            for i in x:
                y[i] = x[i] * (12 // k[i])
        """,
        """
        @ts.op("x[n], k[n]: i32 -> y[n]")
        @ti.kernel
        def op(x: A, k: A, y: A):
            for i in x:
                y[i] = x[i] * (12 // ti.max(k[i], 1))
        """,
        "torch.tensor([1.0, 2.0]), torch.tensor([3, 0], dtype=torch.int32)",
    ),
    Row(
        "TS608",
        """
        The sanitizer interprets a kernel number by number, and supports the usual constructs. It reports unsupported
        ones, so an empty list of findings means that the whole kernel was checked.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = ti.raw_div(x[i], 3.0)
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i] / 3.0
        """,
        "torch.tensor([1.0, 2.0])",
    ),
    Row(
        "TS609",
        """
        [TS305](TS305.md), seen in a run: a local of float32 rounds what float64 arrays hold.
        """,
        """
        @ts.op("x[n] -> y[]")
        @ti.kernel
        def op(x: A, y: A):
            for _ in range(1):
                s = 0.0
                for i in range(x.shape[0]):
                    s += x[i]
                y[None] = s
        """,
        """
        @ts.op("x[n] -> y[]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[None] += x[i]
        """,
        "torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)",
    ),
    Row(
        "TS610",
        """
        `init={"y": "empty"}` uses uninitialized memory. If the kernel does not write an element, the caller gets
        whatever was there: often zeros, which is why tests miss it.
        """,
        """
        @ts.op("x[n] -> y[n]", init={"y": "empty"})
        @ti.kernel
        def op(x: A, y: A):
            for i in range(1, x.shape[0] - 1):
                y[i] = x[i + 1] - x[i - 1]
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in range(1, x.shape[0] - 1):
                y[i] = x[i + 1] - x[i - 1]
        """,
        "torch.tensor([1.0, 2.0, 3.0])",
    ),
    Row(
        "TS611",
        """
        Where the spec says `unique idx[n]`, `segments rays[r, 2]`, `ranges tiles[t, 2]` or `offsets start[r]`, the
        gradient adds without atomics. With numbers that break the promise, two threads add to one element at once,
        and parts of the gradient are lost: not in every run, and not on small inputs.
        """,
        """
        @ts.op("x[n], unique idx[m]: i32 -> y[m]")
        @ti.kernel
        def op(x: A, idx: A, y: A):
            for i in y:
                y[i] = x[idx[i]]
        """,
        """
        @ts.op("x[n], idx[m]: i32 -> y[m]")
        @ti.kernel
        def op(x: A, idx: A, y: A):
            for i in y:
                y[i] = x[idx[i]]
        """,
        "torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 0, 2], dtype=torch.int32)",
    ),
    Row(
        "TS701",
        """
        The op's gradient differs from the exact one, which is computed number by number in float64, and from finite
        differences. It is hand-written, or an engine's. The element with the largest error is reported.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i] * x[i]


        @op.backward
        @ti.kernel
        def square_backward(x: A, grad_y: A, grad_x: A):
            for i in x:
                grad_x[i] = x[i] * grad_y[i]
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i] * x[i]


        @op.backward
        @ti.kernel
        def square_backward(x: A, grad_y: A, grad_x: A):
            for i in x:
                grad_x[i] = 2.0 * x[i] * grad_y[i]
        """,
        "torch.tensor([1.0, 2.0])",
    ),
    Row(
        "TS702",
        """
        Differences from the left and from the right do not agree: the inputs are at a kink or a jump. The gradient
        is one of several that [conventions](../conventions.md) choose from. This matters little to an optimizer, but
        may matter in a comparison.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = ti.abs(x[i])
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = ti.sqrt(x[i] * x[i] + 1e-4)
        """,
        "torch.tensor([0.0, 1.0])",
    ),
    Row(
        "TS703",
        """
        The op has no gradient, for the reason in the message. A check reports it, since such an op can only be
        used for inference.
        """,
        """
        @ts.op("x[n] -> y[n]", adjoint="engine")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                ti.atomic_max(y[0], x[i])
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                ti.atomic_max(y[0], x[i])
        """,
        "torch.tensor([1.0, 2.0])",
    ),
    Row(
        "TS704",
        """
        The results of the compiled op differ from its source, or from call to call: random numbers, a
        race, or a bug of an engine.
        """,
        """
        @ts.op("x[n] -> y[n]", adjoint="engine")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i] * ti.random()
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                y[i] = x[i] * x[i]
        """,
        "torch.tensor([1.0, 2.0])",
    ),
    Row(
        "TS705",
        """
        Zeros agree with zeros. If the outputs do not depend on an input (a point outside the picture, a branch that
        is not taken), the check cannot judge the gradient, since a missing one is 0 too. If nothing else was compared,
        the verdict is `not tested`. The remedy proposes random inputs with other derivatives, if any were found.
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                if x[i] > 5.0:
                    y[i] = x[i] * x[i]
        """,
        """
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def op(x: A, y: A):
            for i in x:
                if x[i] > 2.0:
                    y[i] = x[i] * x[i]
        """,
        "torch.tensor([1.0, 2.5, 3.0])",
        "Better than another branch: inputs that take it.",
    ),
)
