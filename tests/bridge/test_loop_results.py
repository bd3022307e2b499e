"""What loops leave is kept by the forward pass, so that the backward pass does not run them a second time."""

import pytest
import torch

import tinsmith as ts


def blended(lang, fp):
    """Build a kernel that blends a list front to back, and ends when little is transmitted."""
    array, real = lang.types.ndarray(), getattr(lang, fp)

    @lang.kernel
    def blend(alpha: array, color: array, starts: array, out: array, left: array):
        for r in left:
            through = real(1.0)
            total = real(0.0)
            for k in range(starts[r], starts[r + 1]):
                a = lang.min(real(0.99), alpha[k] * alpha[k])
                if a > real(0.05):
                    after = through * (real(1.0) - a)
                    if after < real(0.02):
                        break
                    total += a * through * color[k]
                    through = after
            out[r] = total
            left[r] = through

    return blend


def by_torch(alpha, color, starts):
    out, left = [], []
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        through, total = alpha.new_ones(()), alpha.new_zeros(())
        for k in range(first, end):
            a = (alpha[k] * alpha[k]).clamp(max=0.99)
            if a > 0.05:
                after = through * (1 - a)
                if after < 0.02:
                    break
                total, through = total + a * through * color[k], after
        out.append(total)
        left.append(through)
    return torch.stack(out), torch.stack(left)


@pytest.fixture
def numbers():
    draw = torch.Generator().manual_seed(3)
    alpha = torch.rand(400, generator=draw, dtype=torch.float64, requires_grad=True)
    color = torch.randn(400, generator=draw, dtype=torch.float64, requires_grad=True)
    # lists of all lengths, empty ones and long ones that end early among them
    starts = torch.tensor([0, 0, 1, 2, 9, 30, 30, 90, 200, 203, 399, 400]).int()
    return alpha, color, starts


SPEC = "alpha[k], color[k], starts[t]: i32 -> out[t - 1], left[t - 1]"


@pytest.fixture
def op(lang64):
    return ts.op(SPEC)(blended(lang64, "f64"))


def compute_gradients(function, inputs):
    leaves = [one.detach().clone().requires_grad_(one.is_floating_point()) for one in inputs]
    result = function(*leaves)
    floats = [one for one in leaves if one.requires_grad]
    return torch.autograd.grad(result, floats, torch.linspace(-1, 1, len(result), dtype=result.dtype))


def find_keeping_passes(op):
    """Return the forward passes that keep something."""
    return [
        words for program in op._core.programs.values() for words, _ in program.runners if "for a gradient" in words
    ]


@pytest.mark.compiled_engine
def test_gradients(op, numbers):
    outputs, reference = op(*numbers), by_torch(*numbers)
    torch.testing.assert_close(tuple(outputs), reference)
    weights = [torch.randn(11, dtype=torch.float64) for _ in range(2)]
    ours = torch.autograd.grad(outputs, numbers[:2], weights)
    torch.testing.assert_close(ours, torch.autograd.grad(reference, numbers[:2], weights), rtol=1e-11, atol=1e-12)
    assert find_keeping_passes(op) == ["forward for a gradient in alpha, color"]


@pytest.mark.compiled_engine
def test_explain_lists_the_saved_results(op, numbers):
    op(*numbers).out.sum().backward()
    text = op.explain("all")
    assert "left_trips: 4 bytes\n" in text and "left_through: 8 bytes\n" in text


@pytest.mark.compiled_engine
def test_the_loop_runs_once(op, numbers):
    """The source of the backward pass has one loop over the list, and no condition that ends it."""
    (op(*numbers).out.sum() + 0).backward()
    (at,) = op._core.reverse.source.specializations
    results = at.results(frozenset({"alpha", "color"}))
    texts = ["\n".join(at.emit(next(iter(one.runs))).readable) for one in (results.forward, results.backward)]
    assert [text.count("for ") - text.count("# for ") for text in texts] == [2, 2]
    assert "break" in texts[0] and "break" not in texts[1].replace("# break", "")


def test_second_derivatives(op, numbers):
    alpha, color, starts = numbers
    alpha, color = (one.detach()[:40].requires_grad_() for one in (alpha, color))
    starts = torch.tensor([0, 3, 20, 40]).int()
    assert torch.autograd.gradgradcheck(lambda *given: tuple(op(*given, starts)), (alpha, color), atol=1e-4)


def test_one_of_the_inputs_and_one_of_the_outputs(op, numbers):
    """A backward pass for less than the forward pass kept values for."""
    alpha, color, starts = numbers
    reference = by_torch(*numbers)
    for input_ in (alpha, color):
        for place in range(2):
            wanted, ours = (
                torch.autograd.grad(
                    made[place].sum(), input_, retain_graph=True, materialize_grads=True, allow_unused=True
                )
                for made in (reference, op(*numbers))
            )
            torch.testing.assert_close(ours, wanted)
    alone = torch.autograd.grad(op(alpha.detach(), color, starts).out.sum(), color)[0]
    torch.testing.assert_close(alone, torch.autograd.grad(reference[0].sum(), color)[0])


def test_no_gradient_keeps_nothing(op, numbers):
    with torch.no_grad():
        op(*numbers)
    assert not find_keeping_passes(op)


def test_transforms_agree(op, numbers):
    alpha, color, starts = numbers

    def total(alpha, color):
        return op(alpha, color, starts).out.square().sum()

    eager = torch.autograd.grad(total(alpha, color), (alpha, color))
    torch.testing.assert_close(torch.func.grad(total, (0, 1))(alpha.detach(), color.detach()), eager)
    again = torch.utils.checkpoint.checkpoint(total, alpha, color, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again, (alpha, color)), eager)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("fp", ["f32", "f64"])
def test_in_lanes_and_on_one_thread(lang, numbers, fp, monkeypatch):
    """Lists that sixteen iterations share run in lanes on several threads; both give what torch does."""
    from tinsmith import _config

    dtype = {"f32": torch.float32, "f64": torch.float64}[fp]
    array, real = lang.types.ndarray(), getattr(lang, fp)

    @lang.kernel
    def tiles(alpha: array, x: array, starts: array, out: array):
        for p in out:
            through = real(1.0)
            total = real(0.0)
            for k in range(starts[p // 16], starts[p // 16 + 1]):
                a = lang.min(real(0.99), lang.exp(-lang.abs(x[p] - alpha[k])))
                if a > real(0.5):
                    after = through * (real(1.0) - a)
                    if after < real(1e-3):
                        break
                    total += a * through * alpha[k]
                    through = after
            out[p] = total

    def reference(alpha, x, starts):
        rows = []
        for p in range(64):
            through, total = alpha.new_ones(()), alpha.new_zeros(())
            for k in range(int(starts[p // 16]), int(starts[p // 16 + 1])):
                a = torch.exp(-(x[p] - alpha[k]).abs()).clamp(max=0.99)
                if a > 0.5:
                    after = through * (1 - a)
                    if after < 1e-3:
                        break
                    total, through = total + a * through * alpha[k], after
            rows.append(total)
        return torch.stack(rows)

    draw = torch.Generator().manual_seed(0)
    alpha, x = torch.rand(90, generator=draw).to(dtype), 2 * torch.rand(64, generator=draw).to(dtype)
    starts = torch.tensor([0, 40, 41, 60, 90]).int()
    wanted = compute_gradients(reference, (alpha, x, starts))
    for below in (0, 10**9):
        monkeypatch.setenv("TINSMITH_SERIAL_BELOW", str(below))
        _config.config.cache_clear()
        op = ts.op("alpha[k], x[p], starts[t]: i32 -> out[p]")(tiles)
        torch.testing.assert_close(compute_gradients(op, (alpha, x, starts)), wanted, rtol=1e-4, atol=1e-5)
        assert find_keeping_passes(op)
    monkeypatch.undo()
    _config.config.cache_clear()


def test_a_loop_that_never_runs_and_no_iterations(op):
    alpha = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    starts = torch.zeros(5, dtype=torch.int32)
    out, left = op(alpha, alpha, starts)
    (out.sum() + left.sum()).backward()
    assert left.tolist() == [1.0] * 4 and alpha.grad.shape == (0,)
    assert op(alpha, alpha, starts[:1]).out.shape == (0,)


def test_a_loop_after_another_one_whose_tape_is_unused(lang64):
    """The kept form stored to a tape that it had no memory for: a raw KeyError."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            total = 0.0
            for j in range(i, 6):
                total += x[j]
            n = 0
            while n < 3 and total < 10.0:
                n += 1
                total += x[n]
                total *= 1.1
            y[i] = total

    def reference(x):
        rows = []
        for i in range(6):
            total, n = x[i:].sum(), 0
            while n < 3 and total < 10.0:
                n += 1
                total = (total + x[n]) * 1.1
            rows.append(total)
        return torch.stack(rows)

    x = (0.3 + 1.4 * torch.rand(6, dtype=torch.float64)).requires_grad_()
    op = ts.op("x[6] -> y[6]", adjoint="source")(kernel)
    torch.testing.assert_close(op(x), reference(x))
    slope, wanted = (torch.autograd.grad(f(x).sum(), x)[0] for f in (op, reference))
    torch.testing.assert_close(slope, wanted)
