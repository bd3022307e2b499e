"""The check of a scan: gradients against differences by horizon, growth, and where numbers stop being finite."""

import pytest
import torch

import tinsmith as ts


@pytest.fixture
def swing(lang):
    array = lang.types.ndarray()

    @ts.op("x[n], v[n], push[n], stiffness[] -> x_next[n], v_next[n], energy[]")
    @lang.kernel
    def swing(x: array, v: array, push: array, stiffness: array, x_next: array, v_next: array, energy: array):
        for i in x:
            w = v[i] + 0.05 * (push[i] - stiffness[None] * lang.sin(x[i]))
            v_next[i] = w
            x_next[i] = x[i] + 0.05 * w
            energy[None] += w * w

    return swing


def test_a_right_gradient_is_right_at_every_horizon(swing):
    begin, push = (torch.rand(4), torch.rand(4)), torch.rand(100, 4)
    check = ts.scan.check(swing, begin, push, parameters=torch.tensor(2.0))
    assert (check.ok, check.verdict, check.explodes_at) == (True, "right", None)
    assert [one.steps for one in check.horizons] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert all(one.verdict == "right" and one.relative_error < 1e-7 for one in check.horizons)
    assert "in float64" in str(check)


def test_the_lengths_are_those_of_the_gradient_by_each_state(swing):
    begin, push, k = (torch.rand(4).double(), torch.rand(4).double()), torch.rand(9, 4).double(), torch.tensor(2.0)
    check = ts.scan.check(swing, begin, push, parameters=k, loss=lambda state, energy: energy.sum() + state[0].sum())
    states = [tuple(one.requires_grad_() for one in begin)]
    energies = []
    for row in push:
        x, v, energy = swing(*states[-1], row, k.double())
        states.append((x, v))
        energies.append(energy)
    loss = torch.stack(energies).sum() + states[-1][0].sum()
    leaves = [one for state in states for one in state]
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    true = torch.stack([torch.cat(gradients[at : at + 2]).norm() for at in range(0, len(leaves), 2)])
    torch.testing.assert_close(check.sizes, true)


def test_a_wrong_gradient_by_hand_is_found(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def backward(grad_y: array, grad_x: array):
        for i in grad_y:
            grad_x[i] = 0.98 * grad_y[i]  # 0.99 would be right

    @ts.op("x[n] -> y[n]", backward=backward)
    @lang.kernel
    def fade(x: array, y: array):
        for i in x:
            y[i] = 0.99 * x[i]

    check = ts.scan.check(fade, torch.rand(5), length=50)
    assert check.verdict == "wrong"
    with pytest.raises(ts.CheckError, match=r"a scan over `fade`, 50 steps: wrong"):
        check.raise_if_failed()


@pytest.mark.costly
def test_a_chaotic_simulation_explodes_and_is_not_called_wrong(lang):
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def logistic(x: array, y: array):
        for i in x:
            y[i] = 3.9 * x[i] * (1.0 - x[i])

    for seed in range(5):
        torch.manual_seed(seed)
        check = ts.scan.check(logistic, torch.rand(5), length=200)
        assert (check.verdict, check.ok) == ("explodes", True), str(check)
        # The exponent of Lyapunov of this map is about 0.5: a million times in about 28 steps.
        assert check.explodes_at is not None
        assert 160 < check.explodes_at < 185
        assert {one.verdict for one in check.horizons if one.steps <= 16} == {"right"}


def test_a_simulation_that_begins_at_a_kink_is_not_called_wrong(lang):
    array = lang.types.ndarray()

    @ts.op("x[n], v[n] -> x_next[n], v_next[n]")
    @lang.kernel
    def fall(x: array, v: array, x_next: array, v_next: array):
        for i in x:
            depth = lang.max(-x[i], 0.0)
            w = 0.99 * v[i] + 0.01 * (200.0 * depth - 1.0)
            v_next[i] = w
            x_next[i] = x[i] + 0.01 * w

    # Half of them rest on the floor.
    check = ts.scan.check(fall, (torch.tensor([0.0, 0.0, 0.0, 0.3, 0.2, 0.4]), torch.zeros(6)), length=200)
    verdicts = [one.verdict for one in check.horizons]
    assert check.verdict == "right"
    assert "at a kink" in verdicts
    assert "wrong" not in verdicts


def test_a_gradient_that_vanishes_is_said_to():
    check = ts.scan.check(lambda x, _: (0.5 * x, None), torch.ones(3), length=64)
    assert (check.verdict, check.vanishes_at) == ("right", 64 - 20)
    assert "it vanishes: a millionth as long before step 44, 0.5 times a step" in str(check)
    assert repr(check).startswith("<tinsmith check of a scan over `") and repr(check).endswith(
        f"steps: {check.verdict}>"
    )
    page = check._repr_html_()
    assert ">the gradient of a scan" in page and page.count("<tr>") == 1 + len(check.horizons) and "vanishes" in page


def test_the_origin_of_a_nonfinite_gradient_is_reported_with_kernel_and_line(lang):
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def root(x: array, y: array):
        for i in x:
            y[i] = lang.sqrt(x[i]) - 0.25

    check = ts.scan.check(root, torch.tensor([1.0, 0.0625]), length=2)
    assert (check.verdict, check.ok, check.not_finite_at) == ("not finite", False, 1)
    assert "op `root`" in check.origin
    assert "the derivative of sqrt(0) is infinity in iteration i = 1" in check.origin


def test_old_names_work_for_one_version():
    check = ts.scan.check(lambda x, _: (0.5 * x, None), torch.ones(3), length=2)
    with pytest.warns(DeprecationWarning, match="`ScanCheck.birth` is named `origin` now"):
        assert check.birth == check.origin
    with pytest.warns(DeprecationWarning, match="`Horizon.apart` is named `relative_error` now"):
        assert check.horizons[0].apart == check.horizons[0].relative_error


@pytest.mark.parametrize("kind", ["an op", "a function"])
def test_a_number_that_is_not_finite_is_named_with_kernel_line_and_element(lang, kind):
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def sink(x: array, y: array):
        for i in x:
            y[i] = lang.log(x[i]) + x[i] - 1.0

    def step(x, _):
        return sink(x) + 0.0 * torch.empty(2), None

    words = (
        r"(?s)step \d+ of a scan.*first    state\[1\] = nan.*made by  op `sink`.*line     .*:\d+: NaN first appears "
    )
    with pytest.raises(ts.CheckError, match=words + r"in iteration i = 1: log\(-"):
        ts.scan(sink if kind == "an op" else step, torch.tensor([1.5, 0.7]), length=30, check_finite=True)


def test_a_function_of_torch_is_named_with_its_line():
    def step(x, _):
        y = torch.empty_like(x).fill_(1.0)
        return y * torch.log(x) + x - 1.0, None

    with pytest.raises(ts.CheckError, match=r"(?s)made by  torch's `log`, called at .*test_scan_check.py:\d+"):
        ts.scan(step, torch.tensor([1.5, 0.7]), length=30, check_finite=True)


def test_states_that_are_updated_in_place_are_named_too(lang):
    @ts.op("inout x[n] ->")
    @lang.kernel
    def sink(x: lang.types.ndarray()):
        for i in x:
            x[i] = lang.log(x[i]) + x[i] - 1.0

    begin = torch.tensor([1.5, 0.7], requires_grad=True)
    with pytest.raises(
        ts.CheckError, match=r"(?s)were finite.*made by  op `sink`.*NaN first appears in iteration i = 1"
    ):
        ts.scan(sink, begin, length=30, check_finite=True)


def test_steps_without_float64_are_checked_in_their_own_precision():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    rows = torch.rand(20, 3)
    check = ts.scan.check(lambda x, row: (x + 0.01 * torch.tanh(layer(x)) + row, None), torch.ones(3), rows)
    assert check.verdict == "right"
    assert "in the step's own precision: in float64 it raises" in str(check)


def test_the_figure_is_written(tmp_path):
    check = ts.scan.check(lambda x, _: (1.5 * x, None), torch.ones(3), length=64)
    check.plot(tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"horizons": [0]}, r"numbers of steps, from 1 to the length(?s:.*)length  4(?s:.*)got     0"),
        ({"horizons": [5]}, r"got     5"),
        ({"horizons": []}, r"got     none"),
        ({"keep": "all"}, r"has no option `keep`"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ts.ArgumentError, match=words):
        ts.scan.check(lambda x, _: (0.5 * x, None), torch.ones(3), length=4, **options)


def test_the_callers_tensors_and_random_numbers_are_left_alone(swing):
    begin = torch.rand(4, requires_grad=True), torch.rand(4)
    torch.manual_seed(3)
    ts.scan.check(swing, begin, torch.rand(5, 4), parameters=torch.tensor(2.0))
    after = torch.rand(1)
    torch.manual_seed(3)
    torch.rand(5, 4)
    assert torch.equal(after, torch.rand(1))
    assert begin[0].grad is None
