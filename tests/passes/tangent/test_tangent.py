"""The tangent pass, held against torch's forward mode through the interpreted kernel."""

import pytest
import torch

import rows
from rows import Draw
from support.roundtrip import lower_kernel
from support.tangents import (
    DOUBLE,
    assert_compiled_agrees,
    assert_tangents_agree,
    build_nest,
    draw_directions,
    draw_nest_arguments,
    lower_with_arguments,
    run_second_tangent,
    run_second_tangent_in_torch,
    run_tangent,
)
from tinsmith import kernels

pytestmark = [pytest.mark.thinned(4), pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")]
BITS = {"casts"}  # makes a float of another one's bits
ROWS = [row for row in rows.ALL if row.name not in BITS]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row(row, lang64):
    lowered_row = lower_with_arguments(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)))
    assert_tangents_agree(*lowered_row)
    floating = [name for name, one in lowered_row[1].items() if one.is_floating_point()]
    assert_tangents_agree(*lowered_row, still=floating[1:])


@pytest.mark.thinned(20)
@pytest.mark.parametrize("seed", range(100))
def test_a_random_nest(lang64, seed):
    kernel = build_nest(lang64, seed)
    assert_tangents_agree(*lower_with_arguments(kernel, draw_nest_arguments(seed)))


# Compiled ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_compiled(row, lang64):
    kernel = row.build(lang64, lang64.f64)
    arguments = row.draw(Draw(torch.float64))
    if lower_kernel(kernel, *arguments).fields:
        pytest.skip("fields: launched by the bridge alone")
    kernel_ir, arrays, numbers = lower_with_arguments(kernel, arguments)
    if any(element for _, element in kernel_ir.arguments.values()):
        pytest.skip("matrix arguments: launched by the bridge alone")
    assert_compiled_agrees(kernel_ir, arrays, numbers, lang64, DOUBLE)


@pytest.mark.thinned(20)
@pytest.mark.parametrize("seed", range(40))
def test_a_random_nest_compiled(lang64, seed):
    kernel = build_nest(lang64, seed)
    assert_compiled_agrees(*lower_with_arguments(kernel, draw_nest_arguments(seed)), lang64, DOUBLE)


# Twice ------------------------------------------------------------------------------------------


@pytest.mark.thinned(20)
@pytest.mark.parametrize("seed", range(100))
def test_second_derivatives_of_a_random_nest(lang64, seed):
    kernel = build_nest(lang64, seed)
    kernel_ir, arrays, numbers = lower_with_arguments(kernel, draw_nest_arguments(seed))
    along, then = ({name: draw_directions(kernel_ir, arrays, {}, way)[name] for name in "xw"} for way in (1, 2))
    mine = run_second_tangent(kernel_ir, arrays, numbers, along, then)
    wanted = run_second_tangent_in_torch(kernel_ir, arrays, numbers, along, then)
    for name in "syz":
        zero = torch.zeros_like(wanted[name])
        torch.testing.assert_close(mine.get(name, zero), wanted[name], rtol=1e-8, atol=1e-9)


# As users write them ----------------------------------------------------------------------------


def test_splatting(lang64):
    """Bounding boxes of their own, three functions deep."""
    generator = torch.Generator().manual_seed(3)
    arguments = [
        torch.rand(*shape, dtype=torch.float64, generator=generator) for shape in ((3, 2), (3, 2), (3,), (3, 3))
    ]
    pos, scale, angle, color = arguments
    opacity, image = torch.tensor([0.4, 0.7, 0.9], dtype=torch.float64), torch.zeros(6, 7, 3, dtype=torch.float64)
    lowered_kernel = lower_with_arguments(
        kernels.splat(lang64, serial=False), (6 * pos, 0.5 + scale, 3 * angle, color, opacity, image)
    )
    assert_tangents_agree(*lowered_kernel)
    assert_compiled_agrees(*lowered_kernel, lang64, DOUBLE)


def test_time_stepping(lang64):
    """State that an outermost loop carries, in arrays."""

    @lang64.kernel
    def springs(x: lang64.types.ndarray(), v: lang64.types.ndarray(), f: lang64.types.ndarray()):
        for _ in range(1):
            for _step in range(6):
                for i in range(x.shape[0]):
                    force = -0.2 * x[i] * x[i] * x[i]
                    if i > 0:
                        force += x[i - 1] - x[i]
                    f[i] = force
                for i in range(x.shape[0]):
                    v[i] += 0.1 * f[i]
                    x[i] += 0.1 * v[i]

    generator = torch.Generator().manual_seed(4)
    lowered_kernel = lower_with_arguments(
        springs, tuple(torch.rand(6, dtype=torch.float64, generator=generator) - 0.5 for _ in range(3))
    )
    assert_tangents_agree(*lowered_kernel)
    assert_compiled_agrees(*lowered_kernel, lang64, DOUBLE)


def test_a_softmax_that_looks_at_each_number_once(lang64):
    @lang64.kernel
    def softmax(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            top = -1e30
            total = 0.0
            for j in range(x.shape[1]):
                above = lang64.max(top, x[i, j])
                total = total * lang64.exp(top - above) + lang64.exp(x[i, j] - above)
                top = above
            y[i] = top + lang64.log(total)

    x = 8 * torch.rand(3, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) - 4
    kernel_ir, arrays, numbers = lower_with_arguments(softmax, (x, torch.zeros(3, dtype=torch.float64)))
    assert_tangents_agree(kernel_ir, arrays, numbers)
    assert_compiled_agrees(kernel_ir, arrays, numbers, lang64, DOUBLE)
    moved = draw_directions(kernel_ir, arrays, {})["x"]
    _, tangents = run_tangent(kernel_ir, arrays, numbers, {"x": moved})
    torch.testing.assert_close(tangents["y"], (x.softmax(1) * moved).sum(1), rtol=1e-11, atol=1e-12)
