"""Arguments of Tin's kernels that Stannum's takes."""

import pytest
import torch

import tinsmith as ts

from support.dropin import CPU, agree, leaf, side_by_side
from support.scenes import Scene, field

pytestmark = side_by_side

F64 = torch.float64


def wrapped(layers, x, y, kernel, *arguments):
    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y)
    return tin.register_kernel(kernel, *arguments).finish()


def test_a_tensor_as_argument(layers, lang64):
    """Read by the kernel as it is at the call; no gradient goes there."""
    x, y, table = field(lang64, (3,)), field(lang64, (3,)), torch.tensor([2.0, 3.0, 4.0], dtype=F64)

    @lang64.kernel
    def weighed(by: lang64.types.ndarray()):
        for i in x:
            y[i] = by[i] * x[i]

    tin, given = wrapped(layers, x, y, weighed, table), leaf(3)
    agree(tin(given), table * given, [given])


def test_a_flag_as_argument(layers, lang64):
    x, y = field(lang64, (3,)), field(lang64, (3,))

    @lang64.kernel
    def flagged(flag: bool):
        for i in x:
            y[i] = x[i]
            if flag:
                y[i] = 2.0 * x[i]

    tin, given = wrapped(layers, x, y, flagged, True), leaf(3)
    agree(tin(given), 2 * given, [given])


def test_the_oldest_form_sets_the_arguments_of_the_one_kernel(layers, lang64):
    if layers is not ts:
        pytest.skip("Stannum 0.9.1 dropped it")
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times()).finish()
    tin.set_kernel_args(3.0)
    given = leaf(4)
    agree(tin(given), 3 * given, [given])


@pytest.mark.parametrize("when", ["before finish", "after finish"])
def test_arguments_may_be_set_later(layers, lang64, when):
    scene = Scene(layers, lang64)
    kernel = scene.times()
    tin = scene.registered().register_kernel(kernel)
    if when == "before finish":
        tin.set_kernel_args(kernel, 3.0)
    tin.finish()
    if when == "after finish":
        tin.set_kernel_args(kernel, 3.0)
    given = leaf(4)
    agree(tin(given), 3 * given, [given])
