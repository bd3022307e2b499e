"""A number tells a second local or array of one name from the first; the IR knows what the source calls it."""

import torch

from support.roundtrip import lower_kernel


def test_the_only_array_of_its_name_has_no_number(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in x:
            shared = lang64.simt.block.SharedArray((4,), lang64.f64)
            shared[i % 4] = x[i]
            lang64.simt.block.sync()
            x[i] = shared[0]

    ir = lower_kernel(kernel, torch.zeros(3).double()).kernel
    assert [*ir.block_memory] == ["shared"]
    assert ir.source_name("shared") == "shared"


def test_numbered_names_of_the_source_are_recognized(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in x:
            t_2 = 2.0 * x[i]
            x[i] = t_2
        for i in x:
            t = 3.0 * x[i]
            x[i] = t
        for i in x:
            t = 4.0 * x[i]
            x[i] = t

    ir = lower_kernel(kernel, torch.zeros(3).double()).kernel
    names = [name for name in ir.locals if name.startswith("t")]
    assert [ir.source_name(name) for name in names] == ["t_2", "t", "t"]
    assert len({*names}) == 3
