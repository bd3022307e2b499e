"""A member of a field of structs that kernels only add to starts each call at zero, whatever they do with others."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

N = 3
CLEARED = {
    "member": ["part[i].vel += 2.0 * part[i].acc"],
    "atomic": ["lang.atomic_add(part[i].vel, 2.0 * part[i].acc)"],
    "under if": ["if on[i] == 1:", "    part[i].vel += 2.0 * part[i].acc"],
    "member as a field": ["part.vel[i] += 2.0 * part.acc[i]"],
    "both ways": ["part.vel[i] += part[i].acc", "part[i].vel += part.acc[i]"],
    "copy of an element": ["p = part[i]", "part[i].vel += 2.0 * p.acc"],
    "copy under if": ["p = part[i]", "if p.acc > -9.0:", "    part[i].vel += 2.0 * p.acc"],
    "by reference": ["add(part[i].vel, 2.0 * part[i].acc)"],
    "field given to a function": ["add_to(part, i)"],
    "another member is stored": ["part[i].mass = part[i].acc", "part[i].vel += 2.0 * part[i].mass"],
    "element of a vector": ["part[i].pos[1] += 2.0 * part[i].acc"],
    "struct in a struct": ["part[i].inner.spin += 2.0 * part[i].acc"],
    "struct in a struct as a field": ["part.inner.spin[i] += 2.0 * part.acc[i]"],
    "reads beside it in the inner struct": ["part[i].inner.spin += 2.0 * part[i].acc + part[i].inner.still"],
}
GROWING = {
    "read": ["part[i].vel += 2.0 * part[i].acc", "part[i].mass = part[i].vel"],
    "read by a copy": ["p = part[i]", "part[i].vel += 2.0 * p.acc", "part[i].mass = p.vel"],
    "element given to a function": ["part[i].vel += 2.0 * acc_of(part[i])"],
    "whole element read": ["part[i].vel += 2.0 * part[i].acc", "other[i] = part[i]"],
}


def output_of(part, body):
    if "pos" in body[0]:
        return part.pos
    return part.inner.spin if "spin" in body[0] else part.vel


def runs_of(lang, body):
    """Make a rollout and a layer of one kernel, and the element of the result that it adds to."""
    real = lang.f64
    inner = lang.types.struct(spin=real, still=real)
    kind = lang.types.struct(vel=real, acc=real, mass=real, pos=lang.types.vector(2, real), inner=inner)
    part, other = (kind.field(shape=N, needs_grad=True) for _ in range(2))
    on = lang.field(lang.i32, N)
    on.fill(1)

    @lang.func
    def add(total: lang.template(), value):
        total += value

    @lang.func
    def add_to(held: lang.template(), i):
        held[i].vel += 2.0 * held[i].acc

    @lang.func
    def acc_of(one):
        return one.acc

    lines = "\n".join(f"        {line}" for line in body)
    text = f"def kernel():\n    for i in range({N}):\n{lines}\n"
    given = {"part": part, "other": other, "on": on, "add": add, "add_to": add_to, "acc_of": acc_of}
    kernel = compile_text(lang, text, **given)
    y = output_of(part, body)
    layer = (
        ts.EmptyTin(adjoint="source").register_input_field(part.acc).register_output_field(y).register_kernel(kernel)
    )
    return ts.rollout(lambda: kernel(), {"x": part.acc}, {"y": y}), layer


@pytest.mark.parametrize("body", CLEARED)
def test_a_member_that_is_only_added_to_starts_at_zero(lang64, body):
    rollout, layer = runs_of(lang64, CLEARED[body])
    x = torch.randn(N, dtype=torch.float64, requires_grad=True)
    for run in (rollout, layer.finish()):
        for _ in range(3):
            y = run(x)
            shown = y[:, 1] if y.dim() == 2 else y
            torch.testing.assert_close(shown, 2.0 * x)
        torch.testing.assert_close(torch.autograd.grad(shown.sum(), x)[0], torch.full_like(x, 2.0))


@pytest.mark.parametrize("body", GROWING)
def test_a_member_that_is_read_warns(lang64, body):
    rollout, layer = runs_of(lang64, GROWING[body])
    x = torch.randn(N, dtype=torch.float64)
    with pytest.warns(UserWarning, match="rollout <lambda> add to the field `y`, which is never cleared"):
        first = rollout(x)
    torch.testing.assert_close(rollout(x) - first, 2.0 * x)
    with pytest.warns(UserWarning, match="EmptyTin add to the field `output_field_0`, which is never cleared"):
        layer.finish()
