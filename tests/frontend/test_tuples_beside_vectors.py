"""Lists and tuples of loop variables are vectors where engines compute with them: beside vectors, and in a choice."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine


@pytest.mark.parametrize("form", ["I + v", "v - I", "[i, j] * v", "I > v", "I + (1, 2)", "I * 2", "(I + v) * 0.5"])
def test_values_are_those_of_the_engine(lang64, form, tmp_path, monkeypatch):
    text = f"""
def make(lang, x, y, v):
    @lang.kernel
    def run():
        for i, j in lang.ndrange(2, 6):
            I = (i, j)
            p = {form}
            y[i, j] = (10.0 * p[0] + p[1]) * x[i, j] ** 2
    return run
"""
    (tmp_path / "tuples_of_indices.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {}
    exec(compile(text, str(tmp_path / "tuples_of_indices.py"), "exec"), namespace)
    x, y = (lang64.field(lang64.f64, (2, 6)) for _ in range(2))
    run = namespace["make"](lang64, x, y, lang64.Vector([0, 3]))
    x.fill(1.0)
    run()
    scale = y.to_torch()
    layer = ts.EmptyTin(adjoint="source").register_input_field(x).register_output_field(y).register_kernel(run).finish()
    given = torch.rand(2, 6, dtype=torch.float64, requires_grad=True)
    result = layer(given)
    torch.testing.assert_close(result, scale * given**2)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), given)[0], 2 * scale * given)


@pytest.mark.parametrize("form", ["(j, i) if i > j else (i, j)", "[i, j] if i > j else [j, i]"])
def test_a_choice_of_tuples_is_an_index(lang64, form, tmp_path, monkeypatch):
    text = f"""
def make(lang, x, y):
    @lang.kernel
    def run():
        for i, j in lang.ndrange(3, 3):
            y[i, j] = (i + 1.0) * x[{form}] ** 2
    return run
"""
    (tmp_path / "choices_of_indices.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {}
    exec(compile(text, str(tmp_path / "choices_of_indices.py"), "exec"), namespace)
    x, y = (lang64.field(lang64.f64, (3, 3)) for _ in range(2))
    run = namespace["make"](lang64, x, y)
    layer = ts.EmptyTin(adjoint="source").register_input_field(x).register_output_field(y).register_kernel(run).finish()
    given = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    chosen = given.triu() + given.triu(1).T if form.startswith("(") else given.tril() + given.tril(-1).T
    expected = (torch.arange(3.0, dtype=torch.float64)[:, None] + 1.0) * chosen**2
    result = layer(given)
    torch.testing.assert_close(result, expected)
    cotangent = torch.rand(3, 3, dtype=torch.float64)
    gradients = [torch.autograd.grad(one, given, cotangent, retain_graph=True)[0] for one in (result, expected)]
    torch.testing.assert_close(*gradients)


def test_negative_of_a_tuple_is_refused_with_its_line(lang64):
    x, y = (lang64.field(lang64.f64, 3) for _ in range(2))

    @lang64.kernel
    def run():
        for i in range(3):
            p = -(i, i)
            y[i] = x[i] * p[0]

    layer = ts.EmptyTin(adjoint="source").register_input_field(x).register_output_field(y).register_kernel(run).finish()
    with pytest.raises(ts.GradientError, match=r"`-\(i, i\)`.*\n.*test_tuples_beside_vectors.py:"):
        layer(torch.ones(3, dtype=torch.float64, requires_grad=True))
