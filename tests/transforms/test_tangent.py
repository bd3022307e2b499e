"""The tangent pass, held against torch's forward mode through the interpreted kernel."""

import linecache
import random

import pytest
import torch

import rows
from rows import Draw
from support import random_nests
from support.roundtrip import lowered
from support.tangents import assert_tangents_agree
from tinsmith.engines import of_kernel

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
BITS = {"casts"}  # makes a float of another one's bits
ROWS = [row for row in rows.ALL if row.name not in BITS]
SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 20 else []) for seed in range(300)]


def given(kernel, arguments):
    """A kernel's IR, arrays and scalar arguments."""
    found = lowered(kernel, *arguments)
    named = {p.name: one for p, one in zip(of_kernel(kernel).parameters(kernel), arguments, strict=True)}
    fields = {name: field.to_torch() for name, field in found.fields.items()}
    arrays = {name: named[name] for name in found.kernel.arrays if name in named}
    return found.kernel, {**arrays, **fields}, {name: named[name] for name in found.kernel.arguments}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row(row, lang64):
    found = given(row.build(lang64, lang64.f64), row.draw(Draw(torch.float64)))
    assert_tangents_agree(*found)
    floating = [name for name, one in found[1].items() if one.is_floating_point()]
    assert_tangents_agree(*found, still=floating[1:])


def kernel_of(source, lang, seed):
    path = f"<random nest {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope = {"lang": lang, "__name__": "random_nests"}
    exec(compile(source, path, "exec", dont_inherit=True), scope)
    return lang.kernel(scope["kernel"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_nest(lang64, seed):
    kernel = kernel_of(random_nests.Writer(random.Random(seed)).source(), lang64, seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(5, generator=generator, dtype=torch.float64) - 0.3
    w = torch.rand(5, 3, generator=generator, dtype=torch.float64) - 0.3
    k = torch.randperm(5, generator=generator).int()
    zeros = [torch.zeros(5, dtype=torch.float64) for _ in range(3)]
    assert_tangents_agree(*given(kernel, (x, w, k, *zeros)))
