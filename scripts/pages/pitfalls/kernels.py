"""The kernels of pitfalls, as text. Marks at the ends of lines name the rules that report them: `#! TS102; taichi:
TS204`.

Those after `sanitizer:` are what a run shows, the others what lint says. `A` is an array of any kind. A kernel
is called `k`.
"""

import textwrap

HEAD = "import {engine} as ti\n\n\n"

TEXTS = {
    "06_inplace_update_global": """
        @ti.kernel
        def k(t: A, x: A, y: A):
            for i in x:
                y[i] = x[i]
            for i in x:
                y[i] = ti.cos(t[i]) * y[i]  #! TS102; sanitizer: TS603
    """,
    "07_ewma_inplace": """
        @ti.kernel
        def k(a: A, d: A, e: A):
            for _ in range(1):
                for j in range(d.shape[0]):
                    e[0] = (1.0 - a[j]) * e[0] + a[j] * d[j]  #! TS102; sanitizer: TS602 TS603
    """,
    "08_cross_iter_toplevel": """
        @ti.kernel
        def k(x: A, y: A):
            ti.loop_config(serialize=True)
            for i in range(x.shape[0]):
                y[i + 1] = y[i] + x[i]  #! TS108; sanitizer: TS602
    """,
    "08b_outer_dummy_loop": """
        @ti.kernel
        def k(x: A, y: A):
            for _ in range(1):
                for i in range(x.shape[0]):
                    y[i + 1] = y[i] + x[i]  #! sanitizer: TS602
    """,
    "09_cross_iter_field": """
        x = ti.field(ti.f64, shape=4, needs_grad=True)
        y = ti.field(ti.f64, shape=5, needs_grad=True)


        @ti.kernel
        def k():
            ti.loop_config(serialize=True)
            for i in range(4):
                y[i + 1] = y[i] + x[i]  #! TS108
    """,
    "10_atomic_max": """
        @ti.kernel
        def k(x: A, m: A):
            for i in x:
                ti.atomic_max(m[0], x[i])  #! TS401 TS102
    """,
    "11_atomic_sub": """
        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[0] -= x[i]
    """,
    "14_mod": """
        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] % 1.0
    """,
    "15_running_max_loop": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                m = -1e9
                for j in range(x.shape[1]):  #! taichi: TS204
                    m = ti.max(m, x[i, j])  #! taichi: TS405
                y[i] = m
    """,
    "15b_running_max_swapped": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                m = -1e9
                for j in range(x.shape[1]):  #! taichi: TS204
                    m = ti.max(x[i, j], m)  #! taichi: TS405
                y[i] = m
    """,
    "16_running_max_if": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                m = -1e9
                for j in range(x.shape[1]):  #! taichi: TS204
                    if x[i, j] > m:
                        m = x[i, j]
                y[i] = m
    """,
    "17_adstack_20": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(1):
                p = 1.0
                for j in range(x.shape[0]):  #! taichi: TS204
                    p = p * x[j]
                y[i] = p
    """,
    "18_nested_accumulate_array": """
        @ti.kernel
        def k(y: A, x: A):
            for i in x:
                for j in y:
                    x[i] += y[j]
    """,
    "19_nested_accumulate_range": """
        @ti.kernel
        def k(y: A, x: A):
            for i in range(x.shape[0]):
                a = 0.0
                for j in range(y.shape[0]):  #! taichi: TS204
                    a += y[j]
                x[i] += a
    """,
    "20_break": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                s = 0.0
                for j in range(x.shape[1]):  #! taichi: TS204
                    if s > 4.5:
                        break  #! TS203
                    s += x[i, j] * x[i, j]
                y[i] = s
    """,
    "20_continue": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                s = 0.0
                for j in range(x.shape[1]):  #! taichi: TS204
                    if x[i, j] < 1.5:
                        continue  #! TS203
                    s += x[i, j] * x[i, j]
                y[i] = s
    """,
    "20_while": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                s = 0.0
                j = 0
                while j < x.shape[1]:  #! TS202
                    s += x[i, j] * x[i, j]
                    j += 1
                y[i] = s
    """,
    "21_select_sqrt_nan": """
        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.select(x[i] > 0.0, ti.sqrt(x[i]), 0.0)  #! TS303
    """,
    "22_if_flattened_nan": """
        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                v = 0.0
                a = x[i] * 2.0
                if a > 0.0:
                    v = 1.0 / a
                y[i] = v
    """,
    "23_norm_zero_nan": """
        v3 = ti.types.vector(3, ti.f64)


        @ti.kernel
        def k(x: ti.types.ndarray(dtype=v3, ndim=1), y: A):
            for i in x:
                y[i] = x[i].norm()  #! TS303
    """,
    "25_max_tie": """
        @ti.kernel
        def k(a: A, b: A, y: A):
            for i in a:
                y[i] = ti.max(a[i], b[i])
    """,
    "26_relu_at_zero": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(1):
                y[0] = ti.max(x[0], 0.0)
                y[1] = ti.max(0.0, x[1])
    """,
    "27_tan": """
        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.tan(x[i])  #! taichi: TS407
    """,
    "29_random": """
        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] * ti.random(ti.f64)  #! TS403
    """,
    "32_f32_local_in_f64": """
        @ti.kernel
        def k(x: ti.types.ndarray(dtype=ti.f64, ndim=1), y: A):
            for i in range(1):
                s = 0.0  #! TS305; sanitizer: TS609
                for j in range(x.shape[0]):  #! taichi: TS204
                    s += x[j] * 0.1
                y[i] = s
    """,
    "37_scalar_argument": """
        @ti.kernel
        def k(a: ti.f64, x: A, y: A):  #! TS410
            for i in x:
                y[i] = a * x[i]
    """,
    "38_kernel_return": """
        @ti.kernel
        def k(x: A) -> ti.f64:
            s = 0.0
            for i in x:
                s += x[i] * x[i]
            return s  #! TS408
    """,
    "40_data_oriented_attr": """
        @ti.data_oriented
        class Scaled:
            def __init__(self):
                self.scale = 2.0

            @ti.kernel
            def k(self, x: A, y: A):
                for i in x:
                    y[i] = self.scale * x[i]  #! TS409
    """,
    "51_out_of_bounds": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                y[i] = x[i + 1] - x[i]  #! TS109; sanitizer: TS604
    """,
    "55_two_toplevel_loops": """
        @ti.kernel
        def k(x: A, h: A, y: A):
            for i in x:
                h[i] = x[i] * x[i]
            for i in x:
                y[i] = ti.sin(h[i])
    """,
    "56_time_loop_outermost": """
        @ti.kernel
        def k(u0: A, u: A):
            for i in range(u0.shape[0]):
                u[0, i] = u0[i]
            ti.loop_config(serialize=True)
            for t in range(3):
                for i in range(u0.shape[0]):
                    u[t + 1, i] = u[t, i] + 0.1 * u[t, i] * u[t, i]  #! TS108
    """,
    "56b_time_loop_wrapped": """
        @ti.kernel
        def k(u0: A, u: A):
            for i in range(u0.shape[0]):
                u[0, i] = u0[i]
            for _ in range(1):
                for t in range(3):
                    for i in range(u0.shape[0]):
                        u[t + 1, i] = u[t, i] + 0.1 * u[t, i] * u[t, i]
    """,
    "64_loop_carried_vector": """
        @ti.kernel
        def k(x: A, n: A, y: A):
            for i in range(x.shape[0]):
                v = ti.Vector([x[i], 0.5])
                for _ in range(n[0]):  #! taichi: TS204
                    v = ti.Vector([v[0] * v[1], v[0] + x[i]])  #! taichi: TS406
                y[i] = v[0] + v[1]
    """,
    "64b_loop_carried_scalars": """
        @ti.kernel
        def k(x: A, n: A, y: A):
            for i in range(x.shape[0]):
                a = x[i]
                b = 0.5
                for _ in range(n[0]):  #! taichi: TS204
                    t = a * b
                    b = a + x[i]
                    a = t
                y[i] = a + b
    """,
    "64c_loop_vector_static_range": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                v = ti.Vector([x[i], 0.5])
                for _ in range(3):
                    v = ti.Vector([v[0] * v[1], v[0] + x[i]])  #! taichi: TS406
                y[i] = v[0] + v[1]
    """,
    "75a_validation_catches": """
        x = ti.field(ti.f64, shape=4, needs_grad=True)
        b = ti.field(ti.f64, shape=(), needs_grad=True)
        y = ti.field(ti.f64, shape=(), needs_grad=True)


        @ti.kernel
        def k():
            y[None] = x[1] * b[None]
            b[None] += 100.0  #! TS101
    """,
    "75b_validation_misses_torch": """
        @ti.kernel
        def k(x: A, b: A, y: A):
            for i in range(1):
                y[None] = x[1] * b[i]
                b[i] += 100.0  #! TS101
    """,
    "77c_max_in_exp_loop": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(y.shape[0]):
                s = 0.0
                for j in range(x.shape[0]):  #! taichi: TS204
                    d = ti.max(x[j], s * 0.1)  #! taichi: TS405
                    s += d * d
                y[i] = s
    """,
    "78_alpha_compositing": """
        @ti.kernel
        def k(a: A, c: A, y: A):
            for i in range(a.shape[0]):
                left = 1.0
                s = 0.0
                for j in range(a.shape[1]):  #! taichi: TS204
                    if left > 0.05:
                        s += left * a[i, j] * c[i, j]
                        left *= 1.0 - a[i, j]
                y[i] = s
    """,
    "88_exp_sum_loop": """
        @ti.kernel
        def k(x: A, y: A):
            for i in range(y.shape[0]):
                s = 0.0
                v = 0.0
                for j in range(x.shape[0]):  #! taichi: TS204
                    v = v + x[j]
                    s += ti.exp(v)  #! taichi: TS404
                y[i] = s
    """,
}

TEXTS["17_adstack_33"] = TEXTS["17_adstack_20"]


def text_of(name: str, engine: str) -> str:
    """Return the text of a pitfall's kernel as a file for an engine."""
    body = textwrap.dedent(TEXTS[name]).strip()
    return HEAD.format(engine=engine) + body.replace(": A", ": ti.types.ndarray()") + "\n"


def shown(name: str) -> str:
    """Return a kernel's text as a page shows it: with rules at the ends of lines, and with `A` for array
    annotations.
    """
    return textwrap.dedent(TEXTS[name]).strip().replace("#! ", "# ").replace("taichi:", "Taichi:")


def marked(text: str, by: str) -> set[tuple[str, int]]:
    """Return the (rule, line) pairs that a text's marks expect of lint for an engine, or of the "sanitizer"."""
    marks = set()
    for number, line in enumerate(text.splitlines(), 1):
        for part in line.partition("#!")[2].split(";"):
            alone, _, rules = part.rpartition(":")
            if alone.strip() == by or (not alone and by != "sanitizer"):
                marks |= {(rule, number) for rule in rules.split()}
    return marks
