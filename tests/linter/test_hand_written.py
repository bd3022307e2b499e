"""TS801: Functions that call `kernel.grad`: what is said of them is what engines do."""

import linecache
import re
import textwrap

import pytest
import torch

import tinsmith as ts
from tinsmith.linter import lint_file

HEAD = """import {module} as ti
import tinsmith as ts
import torch
from torch.autograd import Function


@ti.kernel
def triple(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 3.0 * x[i]


@ti.kernel
def add(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] += 3.0 * x[i]


@ti.kernel
def count(x: ti.types.ndarray(), y: ti.types.ndarray(), hits: ti.types.ndarray(dtype=ti.i32)):
    for i in x:
        hits[0] += 1
        y[i] = 3.0 * x[i]


def shell(tensor, grad):
    tensor = tensor.detach().requires_grad_()
    tensor.grad = grad.clone(memory_format=torch.contiguous_format)
    return tensor


def run_gradient(kernel, x, y):
    kernel.grad(x, y)


"""
FORWARD = """
    @staticmethod
    def forward(ctx, x):
        y = torch.zeros_like(x)
        KERNEL(x.detach(), y)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
"""
DOUBLED, ZEROED, EVERY, LOST, CLEARED = "twice", "sibling", "every gradient is 0", "is lost where", "already has"
ONLY_LEAF, COUNTED, SUM, NO_GRAD, KEPT = "only a leaf", "are made twice", "sum()", "no_grad", "not noticed"

# name: (failures, the statements of `backward`)
BACKWARDS = {
    "as everybody copies it": (
        {DOUBLED, ZEROED},
        "y.grad = dy.contiguous(); triple.grad(x, y); return x.grad",
    ),
    "without contiguous": ({DOUBLED, ZEROED, SUM}, "y.grad = dy; triple.grad(x, y); return x.grad"),
    "a copy of the gradient": ({DOUBLED}, "y.grad = dy.clone().contiguous(); triple.grad(x, y); return x.grad"),
    "a copy of what is returned": (
        {DOUBLED},
        "y.grad = dy.clone().contiguous(); triple.grad(x, y); return x.grad.clone()",
    ),
    "a fresh buffer of the leaf": (
        {DOUBLED},
        "y.grad = dy.clone().contiguous(); x.grad = torch.zeros_like(x); triple.grad(x, y); g = x.grad; return g",
    ),
    "a view of the gradient": (
        {ZEROED},
        "a = shell(x, 0 * x); y.grad = dy.contiguous().view(-1); triple.grad(a, y); return a.grad",
    ),
    "a detached gradient": (
        {ZEROED, SUM},
        "a = shell(x, 0 * x); y.grad = dy.detach(); triple.grad(a, y); return a.grad",
    ),
    "an output that is only added to": ({DOUBLED}, "y.grad = dy.contiguous(); add.grad(x, y); return x.grad"),
    "by name": ({DOUBLED, ZEROED}, "y.grad = dy.contiguous(); triple.grad(y=y, x=x); return x.grad"),
    "through a helper": ({DOUBLED, ZEROED}, "y.grad = dy.contiguous(); run_gradient(triple, x, y); return x.grad"),
    "through a name": ({DOUBLED, ZEROED}, "run = triple.grad; y.grad = dy.contiguous(); run(x, y); return x.grad"),
    "an output without requires_grad": (
        {EVERY},
        "b = torch.zeros_like(y); b.grad = dy.clone(); a = shell(x, 0 * x); triple.grad(a, b); return a.grad",
    ),
    "the leaf is cleared": (
        {CLEARED},
        "y.grad = dy.clone().contiguous(); x.grad = None; triple.grad(x, y); g = x.grad; x.grad = None; return g",
    ),
    "nothing is returned": ({ONLY_LEAF}, "y.grad = dy.clone().contiguous(); triple.grad(x, y); return None"),
    "a contiguous temporary": (
        {DOUBLED, LOST},
        "y.grad = dy.clone().contiguous(); triple.grad(x.contiguous(), y); return x.grad",
    ),
    "own buffers": (set(), "a, b = shell(x, 0 * x), shell(y, dy); triple.grad(a, b); return a.grad"),
    "clones": (
        set(),
        "a = x.detach().clone().requires_grad_(); a.grad = torch.zeros_like(a); b = y.detach().requires_grad_(); "
        "b.grad = dy.clone(memory_format=torch.contiguous_format); triple.grad(a, b); return a.grad",
    ),
    "a list of copies": (
        set(),
        "arrays = [one.detach().clone().requires_grad_() for one in ctx.saved_tensors]\n"
        "for one in arrays:\n    one.grad = torch.zeros_like(one)\n"
        "arrays[-1].grad.copy_(dy); triple.grad(*arrays); return arrays[0].grad",
    ),
}


def write_source(module, name, number=0):
    _, body = BACKWARDS[name]
    kernel = "add" if "add.grad" in body else "triple"
    lines = textwrap.indent("\n".join(re.split(r"; (?!\S+=)", body)), " " * 8)
    return f"class Hand{number}(Function):{FORWARD.replace('KERNEL', kernel)}{lines}\n\n\n"


def hand_written(text):
    return [one for one in lint_file("hand.py", text) if one.rule in ("TS801", "TS002")]


@pytest.mark.parametrize("name", BACKWARDS)
@pytest.mark.parametrize("module", ["taichi", "quadrants"])
def test_the_failures_that_apply_are_listed(module, name):
    (one,) = hand_written(HEAD.format(module=module) + write_source(module, name))
    expected, body = BACKWARDS[name]
    words = {DOUBLED, ZEROED, EVERY, LOST, CLEARED, ONLY_LEAF, COUNTED, SUM, NO_GRAD, KEPT}
    assert {word for word in words if word in one.message} == expected, one.message
    assert one.severity == ("error" if expected else "info")
    assert "a second derivative is silently a constant" in one.message
    kernel = "add" if "add.grad" in body else "triple"
    assert one.message.startswith(f"`{kernel}.grad` in the autograd Function `Hand0`: (1) ")
    assert one.remedy.splitlines() == [
        f'op = ts.op("x[n] -> y[n]")({kernel})',
        "op(x)  # in place of Hand0.apply(x)",
    ]


def test_engines_fail_as_the_findings_say(engine, lang):
    """Leaves, siblings and the caller's gradients of each row, in one process."""
    names = [name for name, (_, body) in BACKWARDS.items() if "contiguous temporary" not in name and body]
    text = HEAD.format(module=engine) + "".join(write_source(engine, name, k) for k, name in enumerate(names))
    path = f"<hand written {engine}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    scope = {"__name__": "hand"}
    exec(compile(text, path, "exec", dont_inherit=True), scope)
    for k, name in enumerate(names):
        expected, _ = BACKWARDS[name]
        apply = scope[f"Hand{k}"].apply
        leaf = torch.ones(4, requires_grad=True)
        apply(leaf).backward(torch.ones(4))
        right = 0.0 if EVERY in expected else 6.0 if DOUBLED in expected else 3.0
        assert leaf.grad.tolist() == [right] * 4, name
        leaf = torch.ones(4, requires_grad=True)
        inner, incoming = 1.0 * leaf, torch.ones(4)
        inner.retain_grad()
        (inner + apply(inner)).backward(incoming)
        assert (incoming.tolist() == [0.0] * 4) == (ZEROED in expected), name
        if expected <= {DOUBLED}:  # what is no leaf is right
            assert leaf.grad.tolist() == [4.0 if not expected else leaf.grad[0].item()] * 4, name
        leaf = torch.ones(4, requires_grad=True)
        (2.0 * leaf).sum().backward()
        apply(leaf).backward(torch.ones(4))
        assert CLEARED not in expected or leaf.grad.tolist() == [3.0] * 4, name


SPELLINGS = {
    "torch.autograd.Function": "import torch\nclass F(torch.autograd.Function):",
    "an alias of torch": "import torch as th\nclass F(th.autograd.Function):",
    "autograd": "from torch import autograd\nclass F(autograd.Function):",
    "an alias of autograd": "import torch.autograd as ag\nclass F(ag.Function):",
    "Function": "from torch.autograd import Function\nclass F(Function):",
    "an alias of Function": "from torch.autograd import Function as Base\nclass F(Base):",
    "the inner module": "from torch.autograd.function import Function\nclass F(Function):",
    "everything": "from torch.autograd import *\nclass F(Function):",
    "a name of the file": "import torch\nBase = torch.autograd.Function\nclass F(Base):",
    "a base of the file": "import torch\nclass Base(torch.autograd.Function):\n    pass\nclass F(Base):",
    "another base too": "import torch\nclass Mixin: pass\nclass F(Mixin, torch.autograd.Function):",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_the_base(name):
    kernel = HEAD.format(module="taichi").partition("class")[0]
    body = FORWARD.replace("KERNEL", "triple") + textwrap.indent(
        "y.grad = dy.contiguous()\ntriple.grad(x, y)\nreturn x.grad\n", " " * 8
    )
    head = kernel.replace("import torch\n", "").replace("from torch.autograd import Function\n", "")
    (one,) = hand_written(f"{head}{SPELLINGS[name]}{body}")
    assert DOUBLED in one.message
    assert ZEROED in one.message


def test_other_classes_are_not_reported():
    text = HEAD.format(module="taichi") + (
        "class F(Function):\n    @staticmethod\n    def forward(ctx, x):\n        triple(x, x)\n        return x\n\n"
        "    @staticmethod\n    def backward(ctx, dy):\n        (g,) = torch.autograd.grad(dy, dy)\n"
        "        return g\n\n\n"
        "class Step:\n    def backward(self, x, y):\n        triple.grad(x, y)\n        return x.grad\n"
    )
    assert hand_written(text) == []


SPECS = {
    "a convolution": (
        """
        @ti.kernel
        def conv(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
            for i in y:
                for j in range(k.shape[0]):
                    y[i] += x[i + j] * k[j]

        class Conv(Function):
            @staticmethod
            def forward(ctx, x, k):
                n = x.shape[0]
                y = torch.zeros(n - k.size(0) + 1, device=x.device)
                conv(x, k, y)
                ctx.save_for_backward(x, k, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                x, k, y = ctx.saved_tensors
                y.grad = dy
                conv.grad(x, k, y)
                return x.grad, k.grad
        """,
        ['op = ts.op("x[n], k[m] -> y[n - m + 1]")(conv)', "op(x, k)  # in place of Conv.apply(x, k)"],
    ),
    "sizes of the call, scratch, integers and numbers": (
        """
        @ti.kernel
        def splat(
            p: ti.types.ndarray(), s: ti.f32, t: ti.types.ndarray(), image: ti.types.ndarray(),
            hits: ti.types.ndarray(dtype=ti.i32),
        ):
            for k in range(p.shape[0]):
                t[k] = s * p[k, 0]
                hits[0, 0] += 1
            for k in t:
                image[0, 0] += t[k] * p[k, 1]

        class Splat(torch.autograd.Function):
            @staticmethod
            def forward(p, s, h, w):
                t = p.new_zeros(p.shape[:1])
                image, hits = torch.zeros((h, w)), torch.zeros(h, w, dtype=torch.int32)
                splat(p, s, t, image, hits)
                return image, hits

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0], *output)
                ctx.s = inputs[1]

            @staticmethod
            def backward(ctx, dimage, dhits):
                p, image, hits = ctx.saved_tensors
                t = torch.zeros(len(p), requires_grad=True)
                image.grad = dimage.clone()
                splat.grad(p, ctx.s, t, image, hits)
                return p.grad, None, None, None
        """,
        [
            'op = ts.op("p[n, m] -> image[h, w], hits[h, w]: i32", scratch="t[n]")(splat)',
            "op(p, s, h=h, w=w)  # in place of Splat.apply(p, s, h, w)",
        ],
    ),
    "a method, and vectors": (
        """
        class Scene:
            @ti.kernel
            def shade(self, normal: ti.types.ndarray(dtype=ti.math.vec3, ndim=2), out: ti.types.ndarray(ndim=2)):
                for i, j in normal:
                    out[i, j] = normal[i, j].sum() * self.gain

            def function(self):
                scene = self

                class Shade(Function):
                    @staticmethod
                    def forward(ctx, normal):
                        out = torch.empty(normal.shape[:-1])
                        scene.shade(normal, out)
                        ctx.save_for_backward(normal, out)
                        return out

                    @staticmethod
                    def backward(ctx, dout):
                        normal, out = ctx.saved_tensors
                        out.grad = dout.contiguous()
                        scene.shade.grad(normal, out)
                        return normal.grad

                return Shade
        """,
        ['op = ts.op("normal[n, m, 3] -> out[n, m]")(scene.shade)', "op(normal)  # in place of Shade.apply(normal)"],
    ),
    "two kernels": (
        """
        @ti.kernel
        def first(x: ti.types.ndarray(), h: ti.types.ndarray()):
            for i, j in x:
                h[i, j] = x[i, j] * x[i, j]

        @ti.kernel
        def second(h: ti.types.ndarray(), y: ti.types.ndarray()):
            for i, j in h:
                y[i] += h[i, j]

        class Both(Function):
            @staticmethod
            def forward(ctx, x):
                h = torch.empty_like(x)
                y = torch.zeros(x.shape[0])
                first(x, h)
                second(h, y)
                ctx.save_for_backward(x, h, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                x, h, y = (one.detach().requires_grad_() for one in ctx.saved_tensors)
                y.grad = dy.clone()
                second.grad(h, y)
                first.grad(x, h)
                return x.grad
        """,
        [
            'op = ts.chain("x[n, m] -> y[n]", [first, second], scratch="h[n, m]")',
            "op(x)  # in place of Both.apply(x)",
        ],
    ),
    "any rank": (
        """
        @ti.kernel
        def each(x: ti.types.ndarray(), y: ti.types.ndarray()):
            for I in ti.grouped(x):
                y[I] = 2.0 * x[I]

        class Each(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.x, ctx.y = x, torch.zeros_like(x)
                each(ctx.x, ctx.y)
                return ctx.y

            @staticmethod
            def backward(ctx, dy):
                ctx.y.grad = dy
                each.grad(ctx.x, ctx.y)
                return ctx.x.grad
        """,
        ['op = ts.op("x[...] -> y[...]")(each)', "op(x)  # in place of Each.apply(x)"],
    ),
    "a kernel of another file": (
        """
        from kernels import render

        class Render(Function):
            @staticmethod
            def forward(ctx, x, gain):
                out = torch.zeros(size(x), 3)
                render(x, gain, out)
                ctx.save_for_backward(x, out)
                ctx.gain = gain
                return out

            @staticmethod
            def backward(ctx, dout):
                x, out = ctx.saved_tensors
                out.grad = dout
                render.grad(x, 1.0, out)
                return x.grad, None
        """,
        [
            'op = ts.op("x[?] -> out[?, 3]")(render)',
            "op(x, gain)  # in place of Render.apply(x, gain)",
            "# `render` is not in this file: write the names of its parameters, and their dims for `?`",
        ],
    ),
    "a kernel that forward is given": (
        """
        class Any(Function):
            @staticmethod
            def forward(ctx, kernel, x):
                ctx.kernel = kernel
                y = x.new_zeros(x.shape)
                ctx.kernel(x, y)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                x, y = ctx.saved_tensors
                if ctx.needs_input_grad[1]:
                    with torch.enable_grad():
                        y.grad = dy.contiguous()
                        ctx.kernel.grad(x, y)
                return None, x.grad
        """,
        [
            'op = ts.op("x[?] -> y[?]")(kernel)',
            "op(x)  # in place of Any.apply(kernel, x)",
            "# `kernel` is not in this file: write the names of its parameters, and their dims for `?`",
        ],
    ),
    "a gradient with a name, in a static method": (
        """
        reverse = triple.grad

        class Static(Function):
            @staticmethod
            def forward(ctx, x):
                y = Static.launch(x)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def launch(x):
                y = torch.empty_like(x)
                triple(x, y)
                return y

            @staticmethod
            def run(x, y, dy):
                y.grad = dy.contiguous()
                reverse(x, y)
                return x.grad

            @staticmethod
            def backward(ctx, dy):
                return Static.run(*ctx.saved_tensors, dy)
        """,
        ['op = ts.op("x[n] -> y[n]")(triple)', "op(x)  # in place of Static.apply(x)"],
    ),
    "a kernel and a buffer that a module holds": (
        """
        class Encoder(torch.nn.Module):
            def __init__(self, n):
                self.kernel = triple
                self.out = torch.zeros(n)

                class Encode(Function):
                    @staticmethod
                    def forward(ctx, x):
                        out = self.out[: x.shape[0]].contiguous()
                        self.kernel(x, out)
                        ctx.save_for_backward(x, out)
                        return out

                    @staticmethod
                    def backward(ctx, dout):
                        x, out = ctx.saved_tensors
                        out.grad = dout.contiguous()
                        self.kernel.grad(x, out)
                        return x.grad

                self.encode = Encode
        """,
        ['op = ts.op("x[n] -> y[n]")(self.kernel)', "op(x)  # in place of Encode.apply(x)"],
    ),
    "a size that nothing tells": (
        """
        class Other(Function):
            @staticmethod
            def forward(ctx, x):
                y = torch.zeros(size_of(x))
                triple(x, y)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                x, y = ctx.saved_tensors
                y.grad = dy
                triple.grad(x, y)
                return x.grad
        """,
        [
            'op = ts.op("x[n] -> y[?]")(triple)',
            "op(x)  # in place of Other.apply(x)",
            "# write the dims of `y` for `?`, which the text of `forward` does not tell",
        ],
    ),
    "fields": (
        """
        fx, fy = ti.field(ti.f32, 4, needs_grad=True), ti.field(ti.f32, 4, needs_grad=True)

        @ti.kernel
        def on_fields():
            for i in fx:
                fy[i] = fx[i] * fx[i]

        class OnFields(Function):
            @staticmethod
            def forward(ctx, x):
                fx.from_torch(x)
                on_fields()
                return fy.to_torch()

            @staticmethod
            def backward(ctx, dy):
                fy.grad.from_torch(dy)
                on_fields.grad()
                return fx.grad.to_torch()
        """,
        [
            'op = ts.op("x[?] -> y[?]")(on_fields)',
            "# give `on_fields` ndarray parameters in place of its fields, and write their dims for `?`;",
            "# or keep the fields, and use ts.EmptyTin",
        ],
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_the_op_that_replaces_the_class(name):
    body, lines = SPECS[name]
    (one,) = hand_written(HEAD.format(module="taichi") + textwrap.dedent(body))
    assert one.remedy.splitlines() == lines
    is_doubled = name != "two kernels" and name != "fields"
    assert (DOUBLED in one.message) == is_doubled


def test_failures_of_hand_written_functions():
    head = HEAD.format(module="taichi")
    (one,) = hand_written(head + textwrap.dedent(SPECS["fields"][0]))
    assert "gradients add up from call to call: nothing clears the field `fx.grad`" in one.message
    assert "which another call of `forward` overwrites before `backward` runs" in one.message
    cleared = SPECS["fields"][0].replace("on_fields.grad()", "fx.from_torch(ctx.x); fx.grad.fill(0); on_fields.grad()")
    (one,) = hand_written(head + textwrap.dedent(cleared))
    assert one.severity == "info"
    (one,) = hand_written(head + textwrap.dedent(SPECS["any rank"][0]))
    assert "a change of `x` between forward and backward is not noticed: it is an attribute of `ctx`" in one.message
    assert "`x.grad` may appear under `no_grad`" in one.message
    once = write_source("taichi", "own buffers").replace("def backward", "def backward", 1)
    once = once.replace("@staticmethod\n    def backward", "@staticmethod\n    @once_differentiable\n    def backward")
    (one,) = hand_written(head + once)
    assert one.message == (
        "`triple.grad` in the autograd Function `Hand0` is the engine's own reverse mode; an op generates a gradient"
    )


def test_an_op_of_a_function_names_the_kernel(engine):
    class Hand(torch.autograd.Function):
        pass

    remedy = "Pass the kernel that `Hand.forward` launches: the op replaces the class, and `tinsmith check` prints the"
    for wrong in (Hand, Hand.apply):
        with pytest.raises(ts.ArgumentError, match=remedy):
            ts.op("x[n] -> y[n]")(wrong)
        with pytest.raises(ts.ArgumentError, match=remedy):
            ts.op("x[n] -> y[n]", engine=engine)(wrong)
        with pytest.raises(ts.ArgumentError, match=remedy):
            ts.chain("x[n] -> y[n]", [wrong])


def test_the_printed_ops_compute_the_same(engine, lang):
    """The op takes the place of the class: its values are the class's, and its gradients the right ones."""
    x, k, p = torch.rand(9), torch.rand(3), torch.rand(5, 2)
    conv = torch.nn.functional.conv1d
    calls = {
        "a convolution": ((x, k), {}, lambda x, k: conv(x[None, None], k[None, None])[0, 0]),
        "two kernels": ((p,), {}, lambda p: p.square().sum(1)),
        "any rank": ((p,), {}, lambda p: 2.0 * p),
        "sizes of the call, scratch, integers and numbers": (
            (p, 2.0),
            {"h": 2, "w": 3},
            lambda p, s: torch.zeros(2, 3).index_put(
                (torch.tensor([0]), torch.tensor([0])), (s * p[:, 0] * p[:, 1]).sum()
            ),
        ),
    }
    text = HEAD.format(module=engine) + "\n".join(textwrap.dedent(SPECS[name][0]) for name in calls)
    path = f"<printed ops {engine}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    scope = {"__name__": "printed"}
    exec(compile(text, path, "exec", dont_inherit=True), scope)
    for name, (inputs, sizes, reference) in calls.items():
        exec(SPECS[name][1][0], scope)
        leaves, twins = (
            [one.clone().requires_grad_() if isinstance(one, torch.Tensor) else one for one in inputs] for _ in range(2)
        )
        result = scope["op"](*leaves, **sizes)
        result = result if isinstance(result, torch.Tensor) else result[0]
        expected = reference(*twins)
        torch.testing.assert_close(result, expected)
        weights = torch.rand_like(expected)
        (result * weights).sum().backward()
        (expected * weights).sum().backward()
        for leaf, twin in zip(leaves, twins, strict=True):
            if isinstance(leaf, torch.Tensor):
                torch.testing.assert_close(leaf.grad, twin.grad)
