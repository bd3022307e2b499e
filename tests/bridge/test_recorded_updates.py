"""Updates in place that autograd records. Each program is also run with functions of torch in place of the ops."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

import cases
import tinsmith as ts


def draw(*shape):
    return torch.rand(shape, dtype=torch.float64, requires_grad=True)


def make_ops(lang):
    """Return three ops. The gradient reads no old value of the first one, and those of the others."""

    @ts.op("inout x[n], v[n] ->")
    @lang.kernel
    def drift(x: lang.types.ndarray(), v: lang.types.ndarray()):
        for i in x:
            x[i] += 0.1 * v[i] * v[i]

    @ts.op("inout x[n], inout v[n], inout count[n] -> energy[n]")
    @lang.kernel
    def swing(
        x: lang.types.ndarray(),
        v: lang.types.ndarray(),
        count: lang.types.ndarray(),
        dt: lang.f64,
        energy: lang.types.ndarray(),
    ):
        for i in x:
            v[i] -= dt * lang.sin(x[i])
            x[i] += dt * v[i]
            count[i] += 1
            energy[i] = lang.exp(x[i]) * v[i]

    @ts.op("inout x[n], k[n] ->")
    @lang.kernel
    def grow(x: lang.types.ndarray(), k: lang.types.ndarray()):
        for i in x:
            x[i] = lang.exp(x[i] * k[i])

    return drift, swing, grow


def drift(x, v):
    x.copy_(x.clone() + 0.1 * v * v)


def swing(x, v, count, dt):
    v.copy_(v.clone() - dt * x.clone().sin())
    x.copy_(x.clone() + dt * v.clone())
    count.add_(1)
    return x.clone().exp() * v.clone()


def grow(x, k):
    x.copy_((x.clone() * k).exp())


def run_swing(swing, a, b, steps=2):
    x, v, count, energies = a * 1, b * 1, torch.zeros(len(a), dtype=torch.int32), []
    for step in range(steps):
        energies.append(swing(x, v, count, 0.1 + step))
    assert count.tolist() == [steps] * len(a) and not count.requires_grad
    return x, v, *energies


def of_new_state(drift, swing, grow):
    v, x = draw(5), torch.rand(5, dtype=torch.float64)
    for _ in range(3):
        drift(x, v)
    return x, *torch.autograd.grad((x**3).sum(), v)


def of_old_values(drift, swing, grow):
    a, k = draw(5), draw(5)
    x = a * 1
    for _ in range(3):
        grow(x, k)
    return x, *torch.autograd.grad(x.sum(), (a, k))


def of_each_output(drift, swing, grow):
    a, b = draw(5), draw(5)
    outputs = run_swing(swing, a, b)
    rows = [torch.autograd.grad(one.sum(), (a, b), retain_graph=True) for one in outputs]
    return [*outputs, *[gradient for row in rows for gradient in row]]


def of_one_input(drift, swing, grow):
    a, v = draw(5), draw(5)
    x = a * 1
    drift(x, v)
    return torch.autograd.grad(x.sum(), a)


def with_an_older_view(drift, swing, grow):
    a, v = draw(5), draw(5)
    x = a * 1
    part = x[1:3]
    drift(x, v)
    return part, *torch.autograd.grad((part**2).sum() + x.sum(), (a, v))


def of_a_view(drift, swing, grow):
    a, v = draw(8), draw(4)
    x = a * 1
    drift(x[2:6], v)
    return x, *torch.autograd.grad((x**2).sum(), (a, v))


def of_detached_memory(drift, swing, grow):
    v, x = draw(5), torch.rand(5, dtype=torch.float64)
    other = x.detach()
    drift(other, v)
    drift(x, v)
    return x, *torch.autograd.grad((x**2 + other**2).sum(), v)


def with_hooks(drift, swing, grow):
    v, x, seen = draw(5), torch.rand(5, dtype=torch.float64), []
    drift(x, v)
    x.retain_grad()
    x.register_hook(lambda gradient: seen.append(gradient.clone()))
    (x * x).sum().backward(retain_graph=True)
    (x * x).sum().backward()
    return v.grad, x.grad, *seen


def of_second_order(drift, swing, grow):
    a, b, k = draw(5), draw(5), draw(5)
    x, v, first, second = run_swing(swing, a, b)
    grow(x, k)
    loss = (first * second + x * v).sum()
    slopes = torch.autograd.grad(loss, (a, b, k), create_graph=True)
    return *slopes, *torch.autograd.grad((slopes[0] * slopes[1] * slopes[2]).sum(), (a, b, k))


def checkpointed(drift, swing, grow):
    a, b = draw(5), draw(5)
    x, _, energy = checkpoint(lambda a, b: run_swing(swing, a, b, 1), a, b, use_reentrant=False)
    return torch.autograd.grad((x * energy).sum(), (a, b))


def with_hooks_on_what_is_saved(drift, swing, grow):
    a, b = draw(5), draw(5)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one.numpy(force=True).copy(), torch.from_numpy):
        outputs = run_swing(swing, a, b)
    return torch.autograd.grad(sum(one.sum() for one in outputs), (a, b))


def of_a_batch_of_cotangents(drift, swing, grow):
    v, x = draw(5), torch.rand(5, dtype=torch.float64)
    drift(x, v)
    return torch.autograd.grad(x, v, torch.eye(5, dtype=torch.float64), is_grads_batched=True)


def of_nothing(drift, swing, grow):
    v, x = draw(0), torch.rand(0, dtype=torch.float64)
    drift(x, v)
    return torch.autograd.grad(x.sum(), v)


def between_calls_without_a_gradient(drift, swing, grow):
    v, x = draw(5), torch.rand(5, dtype=torch.float64)
    with torch.no_grad():
        drift(x, v)
    drift(x, v)
    with torch.no_grad():
        drift(x, v)
    return x, *torch.autograd.grad((x * x).sum(), v)


PROGRAMS = [
    of_new_state,
    of_old_values,
    of_each_output,
    of_one_input,
    with_an_older_view,
    of_a_view,
    of_detached_memory,
    with_hooks,
    of_second_order,
    checkpointed,
    with_hooks_on_what_is_saved,
    of_a_batch_of_cotangents,
    of_nothing,
    between_calls_without_a_gradient,
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_those_of_torch(lang64, program):
    ops = make_ops(lang64)
    # The second time, the programs of the ops' calls are known.
    for _ in range(2):
        results = []
        for given in (ops, (drift, swing, grow)):
            torch.manual_seed(1)
            results.append(tuple(program(*given)))
        cases.assert_close(*results)


def test_derivatives_agree_with_differences(lang64):
    swing = make_ops(lang64)[1]
    given = draw(3), draw(3)
    assert torch.autograd.gradcheck(lambda a, b: run_swing(swing, a, b), given)
    assert torch.autograd.gradgradcheck(lambda a, b: run_swing(swing, a, b), given)


def record_copies(call, *arguments):
    with profile() as record:
        call(*arguments)
    return {event.key for event in record.key_averages()} & {"aten::copy_", "aten::clone"}


def test_only_old_values_that_the_gradient_reads_are_copied(lang64):
    drift, _, grow = make_ops(lang64)
    v, x = draw(9), torch.rand(9, dtype=torch.float64)
    for _ in range(2):
        version, address = x._version, x.data_ptr()
        assert record_copies(drift, x, v) == set()
        assert (x._version, x.data_ptr()) == (version + 1, address)
        assert record_copies(grow, x, v) >= {"aten::clone"}
    assert x.grad_fn.name() == "growBackward"


def test_an_input_that_was_saved_and_changed_is_refused_by_torch(lang64):
    drift, v, x = make_ops(lang64)[0], draw(5), torch.rand(5, dtype=torch.float64)
    given = v * 1
    drift(x, given)
    given.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()


def test_what_torch_refuses_stays_refused_when_the_call_is_known(lang64):
    drift, v, leaf = make_ops(lang64)[0], draw(5), draw(5)
    for _ in range(3):
        drift(leaf * 1, v)
    kept = leaf.detach().clone()
    with pytest.raises(ts.GradientError, match="`x` in place, but it is a leaf that requires a gradient"):
        drift(leaf, v)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        drift(torch.stack([leaf, leaf]).unbind(0)[0], v)
    with torch.inference_mode():
        inferred = torch.rand(5, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        drift(inferred, v)
    assert torch.equal(leaf, kept)


def test_threads_update_their_own_states(lang64):
    drift = make_ops(lang64)[0]

    def run(_):
        v, x = draw(5), torch.zeros(5, dtype=torch.float64)
        for _ in range(20):
            drift(x, v)
        (slope,) = torch.autograd.grad(x.sum(), v)
        return (slope - 4 * v).abs().max().item()

    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(run, range(4)))
    assert len(errors) == 4
    assert max(errors) < 1e-12
