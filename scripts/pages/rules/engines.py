"""Rules about the engines' reverse modes."""

from .row import Row

ROWS = (
    Row(
        "TS401",
        """
        Both engines reverse every atomic as an addition: each candidate of a maximum gets the whole gradient, not
        only the largest. tinsmith gives it to the largest, and divides it among equal ones, as torch.amax does.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_max(y[0], x[i])
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], x[i])
        """,
    ),
    Row(
        "TS402",
        """
        An atomic returns the value before the change, which in a parallel loop depends on the order of the
        iterations. An engine's reverse mode runs it again and gets another value. For floats no gradient can be right.
        Integers, such as an index from a counter, are saved by the forward pass of an op for its generated
        gradient: for arrays that are known to hold integers, the rule only concerns `adjoint="engine"`.

        Nothing is reported for an element that belongs to one iteration of the parallel loop, such as a counter
        for each environment, `ti.atomic_add(count[b], 1)` in a loop over `b`: its order is that of the
        iteration's statements.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                old = ti.atomic_add(y[0], x[i])
                y[i + 1] = old
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], x[i])
        """,
    ),
    Row(
        "TS403",
        """
        The reverse kernel would draw another number than the forward kernel; engines raise an error without a line. In
        an op, numbers follow `torch.manual_seed`, and the backward pass draws the same ones.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] * ti.random()
        """,
        """
        def k(x: A, noise: A, y: A):
            for i in x:
                y[i] = x[i] * noise[i]
        """,
        words="For an engine's own reverse mode, pass the numbers as an input.",
    ),
    Row(
        "TS404",
        """
        The derivatives of `exp`, `tanh` and `rsqrt` are computed from their result. Taichi does not keep it for each
        iteration: in a loop beside locals, loads of arrays with a gradient or additions to them, the last result is
        used for all. Attention and volume rendering have such loops.
        """,
        """
        def k(x: A, y: A):
            for i in y:
                s = 0.0
                for j in range(x.shape[0]):
                    s += ti.exp(x[j])
                y[i] = s
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(x.shape[0]):
                    y[i] += ti.exp(x[j])
        """,
        words="For Taichi's own reverse mode, put nothing beside the loop: loads go into their own loop.",
    ),
    Row(
        "TS405",
        """
        Taichi's reverse mode compares the operands of `min` and `max` as they are at the loop's end, so the
        gradient goes to the wrong one: if the loop carries an operand, or if there is a load of an array with a
        gradient, or an addition to one, beside it.
        """,
        """
        def k(x: A, y: A):
            for i in y:
                m = 0.0
                for j in range(x.shape[0]):
                    m = ti.max(m, x[j])
                y[i] = m
        """,
        """
        def k(x: A, y: A):
            for i in y:
                m = 0.0
                for j in range(x.shape[0]):
                    m += ti.max(0.5, x[j])
                y[i] = m
        """,
    ),
    Row(
        "TS406",
        """
        A vector that a loop computes from itself has only one place in Taichi's reverse mode, with the last iteration's
        value. That is so in Taichi's own `kernel.grad()`. If tinsmith uses Taichi's gradient, it makes
        Taichi split vectors into numbers first, and the gradient is right. Quadrants' own `kernel.grad()` is wrong
        if such a vector is multiplied by a number (`v = v * v.norm()`), which lint does not report; tinsmith makes
        Quadrants split vectors as well.
        """,
        """
        def k(x: A, y: A):
            for i in y:
                v = ti.Vector([x[i], 1.0])
                for j in range(3):
                    v = ti.Vector([v[0] * v[1], v[1] * x[j]])
                y[i] = v[0]
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    v = ti.Vector([x[i], x[j]])
                    y[i] += v[0] * v[1]
        """,
    ),
    Row(
        "TS407",
        """
        Taichi has no derivative of `tan` and a few other functions; its error names no line. tinsmith has them.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.tan(x[i])
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.sin(x[i]) / ti.cos(x[i])
        """,
    ),
    Row(
        "TS408",
        """
        A kernel that returns a value gives its caller a Python number, which has no gradient. An op of it
        has one: the returned value is an output, under a name in the spec that no parameter has.
        """,
        """
        def k(x: A) -> ti.f32:
            s = 0.0
            for i in range(1):
                s += x[i]
            return s
        """,
        """
        @ts.op("x[n] -> loss[]")
        @ti.kernel
        def k(x: A) -> ti.f32:
            s = 0.0
            for i in range(1):
                s += x[i]
            return s
        """,
        words="`loss` is the returned value. `ts.op(...)` of a kernel that is defined elsewhere works as well.",
    ),
    Row(
        "TS409",
        """
        Globals and attributes are read when the kernel is compiled, and never again: a later change
        has no effect. An op reads them in every call, and compiles again if they changed.
        """,
        """
        @ti.data_oriented
        class Swarm:
            def __init__(self):
                self.drag = 0.5

            @ti.kernel
            def step(self, x: A, y: A):
                for i in x:
                    y[i] = x[i] * self.drag
        """,
        """
        def k(x: A, drag: A, y: A):
            for i in x:
                y[i] = x[i] * drag[0]
        """,
        words="A number that changes, or is learned, is an array.",
    ),
    Row(
        "TS410",
        """
        A float argument is a Python number, which has no gradient. To learn it, list it in the spec as an
        array without dims, `scale[]`, and pass a 0-d tensor; the kernel stays as it is. A vector or a matrix is
        listed with the dims of its type, `light[3]`.
        """,
        """
        def k(x: A, y: A, scale: ti.f32):
            for i in x:
                y[i] = x[i] * scale
        """,
        """
        def k(x: A, y: A, scale: A):
            for i in x:
                y[i] = x[i] * scale[None]
        """,
    ),
    Row(
        "TS411",
        """
        A value is computed before an inner loop, and the loop uses it. Its gradient is the sum over all
        iterations, but an engine's reverse mode returns the gradient of one iteration. tinsmith's own gradient
        is right.

        An inner loop is any loop inside the parallel loop of a kernel, and any loop of a function, except loops
        that `ti.static` unrolls and loops that run once. Which engines lose the gradient depends on how the
        value is computed:

        | the value that the loop uses | Taichi 1.7.4 | Quadrants 1.3.3 |
        |---|---|---|
        | a number or vector that is computed once: `r = x[i] * 2.0` | lost | lost |
        | a parameter of a function, if a call passes a computed value | lost | lost |
        | a local that several statements of one block assign: `r = x[i]`, then `r = r * 2.0` | lost | right |
        | a local that branches or loops assign | right | right |
        | such a local, stored as it is: `y[j] += r` | lost | lost |
        | an element of an array, `r = x[i]`, or a call that passes one | right | right |

        Nothing is reported for integers, for values that only decide a branch or an index, for locals that the
        inner loop itself carries from one iteration to the next, or if one of the loops is a `while` or
        contains a `break` or `continue`: engines refuse to differentiate such loops ([TS202](TS202.md),
        [TS203](TS203.md)).

        For a parameter the finding is a *hint* if no call in the file passes a computed value, since calls in
        other files may.
        """,
        """
        def k(x: A, y: A):
            for i in x:
                r = x[i] * 2.0
                for j in range(3):
                    y[j] += r
        """,
        """
        def k(x: A, y: A):
            for i in x:
                for j in range(3):
                    r = x[i] * 2.0
                    y[j] += r
        """,
    ),
    Row(
        "TS412",
        """
        Beside the load of an array with a gradient, or an addition to one, Taichi's reverse mode runs an inner loop
        forwards first, and keeps each iteration's decision on a stack. Without its optimization of control flow it
        reads that stack wrongly, and reverses an iteration with another one's decision: with
        `ti.init(cfg_optimization=False)`, and where tinsmith turns the optimization off, for kernels that read and
        change an array. With the optimization, the gradient is right only while the stack is deep enough
        ([TS204](TS204.md)), which takes several entries per iteration for `and` and `or`, and if no loop inside the
        branch uses a value that the branch has used before. A loop inside whose length changes does not compile, or
        ends the process.
        """,
        """
        def k(x: A, y: A, first: A):
            for i in y:
                first[i] = x[0]
                for j in range(x.shape[0]):
                    if x[j] > 0.5:
                        y[i] += x[j] * x[j]
        """,
        """
        def k(x: A, y: A, first: A):
            for i in y:
                first[i] = x[0]
                for j in range(x.shape[0]):
                    y[i] += ti.select(x[j] > 0.5, x[j] * x[j], 0.0)
        """,
        words="For Taichi's own reverse mode, avoid the branch, or move what is beside the loop to another loop.",
    ),
)
