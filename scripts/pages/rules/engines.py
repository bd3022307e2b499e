"""What engines' reverse modes do."""

from .row import Row

ROWS = (
    Row(
        "TS401",
        """
        Both engines reverse every atomic as an addition: of a maximum each candidate gets the whole gradient, not
        only the one that won. tinsmith gives it to who won, and shares it among those that tie, as torch.amax does.
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
        What an atomic gives back is the value before it, and in a parallel loop that depends on the order of the
        iterations. An engine's reverse mode runs it again, and meets another value. Of floats no gradient can be right.
        Integers, such as the index that a counter hands out, are kept by the forward pass of an op for its generated
        gradient: for arrays that are known to hold integers the rule is about `adjoint="engine"` alone.
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
        The reverse kernel would draw another number than the forward kernel did; engines refuse, without a line. In
        an op numbers follow `torch.manual_seed`, and the backward pass meets the same ones.
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
        words="For an engine's own reverse mode, hand the numbers in.",
    ),
    Row(
        "TS404",
        """
        The derivatives of `exp`, `tanh` and `rsqrt` are written with their result. Taichi does not keep it for each
        iteration: in a loop beside locals, loads of arrays with a gradient or additions to them, the last one's stands
        for all. Attention and volume rendering are such loops.
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
        words="For Taichi's own reverse mode, with nothing beside the loop: loads in a loop of their own.",
    ),
    Row(
        "TS405",
        """
        Taichi's reverse mode compares the operands of `min` and `max` as they are at the loop's end, so the
        gradient goes to the wrong one: where the loop carries one, and where there is a load of an array with a
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
        A vector that a loop makes out of itself has one place in Taichi's reverse mode, and the last iteration's
        value in it. That is so in Taichi's own `kernel.grad()`. Where tinsmith takes a gradient from Taichi, it has
        Taichi take vectors apart into numbers first, and that comes out right. Quadrants' own `kernel.grad()` is wrong
        where such a vector is multiplied by a number (`v = v * v.norm()`), which lint does not tell; tinsmith has
        Quadrants take vectors apart too.
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
        Taichi has no derivative of `tan`, and a few functions more, and says so without a line. tinsmith has.
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
        Who calls a kernel that returns a value gets a Python number: no gradient can come back through it. An op of it
        has one: what is returned is an output, by a name in the spec that no parameter has.
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
        words="`loss` is what the kernel returns. `ts.op(...)` of a kernel that is defined elsewhere does as well.",
    ),
    Row(
        "TS409",
        """
        Globals and attributes are read when the kernel is compiled, and never again: a number that changes later
        has no effect. An op looks at them in every call, and compiles again when they changed.
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
        words="A number that changes, or learns, is an array.",
    ),
    Row(
        "TS410",
        """
        A float argument is a number to torch: it has no gradient. If it is to learn, list it in the spec as an
        array without dims, `scale[]`, and hand in a 0-d tensor; the kernel stays as it is. A vector or a matrix is
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
        A local is made outside of an inner loop and used inside. Engines add what the loop sends back to it once,
        that of the last iteration, instead of for each.
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
        forwards first, and does not keep which way its branches went: all iterations are reversed as the last one
        was. The same holds for how often a loop inside ran.
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
        words="For Taichi's own reverse mode, without a branch; or with what stands beside the loop in one of its own.",
    ),
)
