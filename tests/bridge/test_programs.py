"""Keys and programs: what calls share, and what a program says it does. No engine is started."""

import pytest
import torch

import tinsmith as ts
from tinsmith.calls import find_program, make_checked_call


@pytest.fixture
def convolve(lang):
    @ts.op("x[n], k[m] -> y[n - m + 1]", engine="python")
    @lang.kernel
    def convolve(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return convolve


def programs_of(op, *inputs, **options):
    call = make_checked_call(op._core, op._bind(inputs, {}))
    return find_program(call, torch.device("cpu"), **options)


def test_a_program_prints_its_key_and_its_actions(convolve):
    k = torch.ones(2, requires_grad=True)
    convolve(torch.arange(4.0), k).sum().backward()
    (program,) = convolve._core.programs.values()
    assert (
        str(program)
        == """\
program of `convolve` for x[n0]: float32, k[n1]: float32 on cpu; gradients of k
  forward:
    take x[n0]: float32
    take k[n1]: float32
    allocate y[n2]: float32: zeros
    launch convolve(x, k, y)
    return x, k, y
  backward for k:
    take the saved x
    take grad_y, zeros where there is none
    allocate grad_k[n1]: float32: zeros
    launch convolve_adjoint_0(x, grad_k, grad_y)
    return grad_k"""
    )
    assert str(program) in convolve.explain("all")


def test_calls_that_differ_in_sizes_share_a_program(convolve):
    small = programs_of(convolve, torch.ones(4), torch.ones(2))
    assert programs_of(convolve, torch.ones(9), torch.ones(3)) is small


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        ((torch.ones(4, dtype=torch.float64), torch.ones(2, dtype=torch.float64)), {}),
        ((torch.ones(4), torch.ones(2)), {"active": frozenset({"k"})}),
        ((torch.ones(4), torch.ones(2)), {"is_ordered": True}),
        ((torch.ones(4, dtype=torch.float16), torch.ones(2)), {}),
    ],
    ids=["dtypes", "gradients", "order", "half precision"],
)
def test_calls_that_differ_otherwise_do_not(convolve, inputs, options):
    plain = programs_of(convolve, torch.ones(4), torch.ones(2))
    other = programs_of(convolve, *inputs, **options)
    assert other is not plain and other.key != plain.key
    assert programs_of(convolve, *inputs, **options) is other


def test_keys_are_compared_by_what_they_say(convolve):
    call = make_checked_call(convolve._core, convolve._bind((torch.ones(4), torch.ones(2)), {}))
    key = find_program(call, torch.device("cpu")).key
    convolve._core.programs.clear()
    again = find_program(call, torch.device("cpu")).key
    assert again is not key and again == key and hash(again) == hash(key)
