"""A misspelled name is answered by the one that was probably meant, whatever its case."""

import pytest
import torch

import tinsmith as ts


@pytest.fixture
def kernel(lang):
    @lang.kernel
    def draw(x: lang.types.ndarray(), scale: lang.f32, t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            t[i] = x[0] * scale
            y[i] = t[i]

    return draw


SPEC = "x[m] -> y[n]"
CALLS = {
    "a size in capitals": ({"scale": 1.0, "N": 5}, "Did you mean `n`?"),
    "a size of another name": ({"scale": 1.0, "length": 5}, "Did you mean `n`?"),
    "an argument in capitals": ({"X": 1, "scale": 1.0, "n": 5}, "Did you mean `x`?"),
    "an argument": ({"scal": 1.0, "n": 5}, "Did you mean `scale`?"),
    "nothing that is alike": ({"zzz": 1.0}, "Leave `zzz` out."),
}
OPTIONS = {
    "a name in capitals": ({"spec": "X[m] -> y[n]"}, "Did you mean `x`?"),
    "a name of scratch": ({"scratch": "T[n]"}, "Did you mean `t`?"),
    "a dim of an input": ({"spec": "x[m] -> y[M]"}, "did you mean `m` in place of `M` in the spec?"),
    "a dtype": ({"spec": "x[m]: F32 -> y[n]"}, "Write `f32`, or another of"),
    "a word before a name": ({"spec": "inot x[m] -> y[n]"}, "Did you mean `inout x[...]`?"),
    "a promise before a name": ({"spec": "uniqe x[m] -> y[n]"}, "Did you mean `unique x[...]`?"),
    "a name in init": ({"init": {"Y": "empty"}}, "Did you mean `y`?"),
    "a word in init": ({"init": {"y": "emtpy"}}, "Did you mean 'empty'?"),
    "an adjoint": ({"adjoint": "sorce"}, "Did you mean 'source'?"),
    "an order": ({"order": "specs"}, "Did you mean 'spec'?"),
    "an engine": ({"engine": "Taichi"}, "Did you mean 'taichi'?"),
    "an option": ({"scrach": "t[n]"}, "Did you mean `scratch`?"),
}


@pytest.mark.parametrize("name", CALLS)
def test_names_of_a_call(kernel, name):
    named, remedy = CALLS[name]
    given = () if "X" in named else (torch.ones(2),)
    for op in (ts.op(SPEC, scratch="t[n]")(kernel), ts.chain(SPEC, [kernel], scratch="t[n]")):
        with pytest.raises(ts.ArgumentError) as refused:
            op(*given, **named)
        assert str(refused.value).endswith(remedy)


@pytest.mark.parametrize("name", OPTIONS)
def test_names_of_options(kernel, name):
    options, remedy = OPTIONS[name]
    given = {"spec": SPEC, "scratch": "t[n]", **options}
    with pytest.raises(ts.TinsmithError) as refused:
        ts.op(given.pop("spec"), **given)(kernel)(torch.ones(2), 1.0)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(("arch", "remedy"), [("cdua", "'cuda'"), ("CPU", "'cpu'")])
def test_names_of_devices(arch, remedy):
    with pytest.raises(ts.EngineError, match=f"Did you mean {remedy}"):
        ts.init(arch)


def test_a_dim_may_have_any_name(lang):
    """Also that of an item which the library parses by itself."""

    @lang.kernel
    def copy(a: lang.types.ndarray(), b: lang.types.ndarray()):
        for i, j in a:
            b[i, j] = a[i, j]

    assert ts.op("a[x, y] -> b[x, y]")(copy)(torch.ones(2, 3)).sum() == 6
