"""The adjoint of every kernel of the table, interpreted, against torch's gradient through the kernel."""

import pytest
import torch

import rows
from rows import Draw
from support.backwards import build_backward, run_backward
from support.interpreted import run_with_gradients
from support.tangents import lower_with_arguments
from tinsmith.ir import NotCovered, types, walk

REFUSED = {
    "casts": "a derivative through the bits of a float",
    "reductions": r"`total\[None\]`, which another iteration of the parallel loop changes",
}
TOLERANCE = {"rtol": 1e-9, "atol": 1e-10, "equal_nan": True}


@pytest.mark.thinned(8)
@pytest.mark.filterwarnings("ignore:.*Calling non-")
@pytest.mark.parametrize("row", rows.ALL, ids=str)
def test_a_row(row, lang64):
    torch.manual_seed(0)
    kernel, arrays, arguments = lower_with_arguments(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)))
    stored = {store.array for store in walk.stores(kernel.body)} & arrays.keys()
    arrays = {name: torch.zeros_like(one) if name in stored else one for name, one in arrays.items()}
    floats = [name for name in arrays if types.is_float(kernel.arrays[name].type)]
    active, outputs = [[name for name in floats if (name in stored) is side] for side in (False, True)]
    cotangents = {name: torch.randn(arrays[name].shape, dtype=torch.float64) for name in outputs}
    if row.name in REFUSED:
        with pytest.raises(NotCovered, match=REFUSED[row.name]):
            build_backward([kernel], active, outputs, sorted(stored))
        return
    program = build_backward([kernel], active, outputs, sorted(stored))
    wanted = run_with_gradients(kernel, arrays, arguments, cotangents)
    actual = run_backward(program, {**arrays, **wanted.arrays}, arguments, cotangents)
    for name in active:
        mine = actual.get(name, torch.zeros_like(wanted.gradients[name]))
        torch.testing.assert_close(mine.reshape(wanted.gradients[name].shape), wanted.gradients[name], **TOLERANCE)
