"""Memory of 32 MiB and more: in huge pages where the system has them, with the values that any memory would have."""

import mmap
from pathlib import Path

import pytest
import torch

import tinsmith as ts
from tinsmith.calls._memory import _KEPT, LARGE, LONG, MOST_ALONE, MOST_KEPT, use_huge_pages

pytestmark = pytest.mark.compiled_engine

COUNT = LARGE // 8
F64 = torch.float64


def read_flags(memory):
    """Return Linux's flags of the pages in the middle of some memory."""
    middle, inside = memory.data_ptr() + memory.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            begin, end = (int(one, 16) for one in first.split("-"))
            inside = begin <= middle < end
        elif inside and first == "VmFlags:":
            return rest
    return []


def is_advised(memory):
    return "hg" in read_flags(memory)


linux = pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE") or not Path("/sys/kernel/mm/transparent_hugepage").exists(),
    reason="the system has no huge pages to ask for",
)


@linux
def test_only_large_memory_uses_huge_pages():
    large = use_huge_pages(torch.empty(COUNT, dtype=F64))
    assert is_advised(large)
    large.fill_(2.0)
    assert large.sum() == 2.0 * COUNT
    assert not is_advised(use_huge_pages(torch.empty(COUNT - 1, dtype=F64)))
    # A view that does not begin with a page.
    assert is_advised(use_huge_pages(torch.empty(COUNT + 3, dtype=F64)[3:]))


def test_systems_without_huge_pages_use_ordinary_ones(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    use_huge_pages.__globals__["_find_advice"].cache_clear()
    try:
        assert use_huge_pages(torch.ones(COUNT, dtype=F64)).sum() == COUNT
    finally:
        use_huge_pages.__globals__["_find_advice"].cache_clear()


@pytest.fixture
def pair(lang64):
    """Build x * k and x + k, where the second is never zeroed."""

    @ts.op("x[n], k[m] -> y[n], z[n]", init={"z": "empty"})
    @lang64.kernel
    def both(
        x: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()
    ):
        for i in x:
            y[i] += x[i] * k[0]
            z[i] = x[i] + k[0]

    return both


@linux
def test_outputs_and_gradients_are_in_huge_pages(pair):
    x, k = torch.rand(COUNT, dtype=F64, requires_grad=True), torch.tensor([3.0], dtype=F64, requires_grad=True)
    y, z = pair(x, k)
    assert is_advised(y) and is_advised(z)
    torch.testing.assert_close((y, z), (x * 3, x + 3))
    (gradient,) = torch.autograd.grad(y, x, torch.ones(COUNT, dtype=F64))
    assert is_advised(gradient)


@pytest.mark.parametrize("which", ["y", "z", "both", "every second"])
def test_gradients_of_large_calls(pair, which):
    x, k = torch.rand(COUNT, dtype=F64, requires_grad=True), torch.tensor([3.0], dtype=F64, requires_grad=True)

    def loss(y, z):
        # A cotangent that is missing, one number for all elements, and one of its own.
        weighted = (y[::2].sum() + z.sum()) / COUNT
        return {"y": y.mean(), "z": z.mean(), "both": (y * y).mean() + z.mean(), "every second": weighted}[which]

    own = torch.autograd.grad(loss(*pair(x, k)), [x, k])
    wanted = torch.autograd.grad(loss(x * k, x + k), [x, k])
    torch.testing.assert_close(own, wanted)


def test_inputs_that_are_not_contiguous(pair):
    x, k = torch.rand(COUNT, 2, dtype=F64)[:, 0], torch.tensor([3.0], dtype=F64)
    y, z = pair(x, k)
    torch.testing.assert_close((y, z), (x * 3, x + 3))


@pytest.mark.compiled_engine
@pytest.mark.parametrize("count", [LONG - 1, LONG, MOST_ALONE // 4, MOST_ALONE // 4 + 1])
def test_middle_memory_starts_at_zero(lang, count):
    """One thread zeroes it where torch would wake another."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def sparse(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 0.5:
                y[i] += x[i]

    x = torch.rand(count)
    for _ in range(3):
        # Freed at once, and likely to be what the op gets.
        torch.full((count,), float("nan"))
        assert torch.equal(sparse(x), torch.where(x > 0.5, x, 0.0))


@pytest.mark.parametrize("place", [0, 1])
def test_freed_results_are_used_again(pair, place):
    x, k = torch.rand(COUNT, dtype=F64), torch.tensor([3.0], dtype=F64)
    pair(x, k)
    addresses = {one.data_ptr() for one in pair(x, k)}
    results = pair(x + 1, k)
    assert results[place].data_ptr() in addresses
    torch.testing.assert_close(results, ((x + 1) * 3, x + 4))


HOLDERS = {
    "the result": lambda y: y,
    "a view": lambda y: y[5:],
    "an array of NumPy": lambda y: y.numpy(),
    "its storage": lambda y: y.untyped_storage(),
    "what autograd saved": lambda y: (y * torch.ones(1, dtype=F64, requires_grad=True)).grad_fn,
    "an exported buffer": lambda y: torch.utils.dlpack.to_dlpack(y),
}


@pytest.mark.parametrize("how", HOLDERS)
def test_results_that_are_held_in_any_way_keep_their_memory(pair, how):
    x, k = torch.rand(COUNT, dtype=F64), torch.tensor([3.0], dtype=F64)
    y, z = pair(x, k)
    address = z.data_ptr()
    held = HOLDERS[how](z)
    del y, z
    assert address not in {one.data_ptr() for one in pair(x, k)}
    del held
    assert address in {one.data_ptr() for one in pair(x, k)}


def test_recycled_results_start_at_zero(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def sparse(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            if x[i] > 0.5:
                y[i] += x[i]

    x = torch.rand(COUNT, dtype=F64)
    for _ in range(3):
        y = sparse(x)
        assert torch.equal(y, torch.where(x > 0.5, x, 0.0))
        y.fill_(float("nan"))
        del y


def test_kept_memory_is_bounded_and_freed_with_the_caches(pair):
    x, k = torch.rand(COUNT, dtype=F64), torch.tensor([3.0], dtype=F64)
    pair(x, k)
    assert sum(size * len(blocks) for size, blocks in _KEPT.items()) <= MOST_KEPT
    assert _KEPT
    ts.clear_caches()
    assert not _KEPT


def test_results_can_be_used_as_any_tensor(pair, tmp_path):
    """Their memory is not torch's, which operations in place, sharing and files do not mind."""
    x, k = torch.rand(COUNT, dtype=F64), torch.tensor([3.0], dtype=F64)
    y, _ = pair(x, k)
    y += 1
    torch.save(y, tmp_path / "y.pt")
    torch.testing.assert_close(torch.load(tmp_path / "y.pt"), x * 3 + 1)
    y.share_memory_()
    assert y.is_shared()
    torch.testing.assert_close(y, x * 3 + 1)
    y.resize_(3)
    torch.testing.assert_close(y, x[:3] * 3 + 1)
