"""What a user sees who mistypes, and what a prompt or a notebook shows of an object: short, and never with colours."""

import linecache

import pytest
import torch

import tinsmith as ts

PROGRAM = """\
@op("x[n] -> y[n]")
@lang.kernel
def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]
"""


def typed(lang, path):
    """What a prompt does with a program that is typed."""
    names = {"op": ts.op, "lang": lang, "__name__": "__main__"}
    exec(compile(PROGRAM, path, "exec"), names)
    return names["double"]


@pytest.mark.parametrize("path", ["<stdin>-7", "<python-input-7>"])
def test_a_kernel_typed_where_the_prompt_keeps_its_source(lang, path):
    """Python 3.13's two prompts name what is typed like this, and leave it with linecache."""
    linecache.cache[path] = (len(PROGRAM), None, PROGRAM.splitlines(keepends=True), path)
    try:
        double = typed(lang, path)
        x = torch.ones(3, requires_grad=True)
        double(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0, 2.0, 2.0]
    finally:
        del linecache.cache[path]


WHY = {"<stdin>": "Before Python 3.13 the plain prompt keeps no source", "<string>": "Code that is given to `exec`"}


@pytest.mark.parametrize("path", WHY)
def test_a_kernel_without_source_says_what_to_do(lang, path):
    with pytest.raises(ts.KernelError) as refused:
        typed(lang, path)
    assert WHY[path] in str(refused.value) and "Put the kernel into a file" in str(refused.value)


@pytest.mark.parametrize(("name", "guess"), [("ops", "op"), ("gradchek", "gradcheck"), ("scann", "scan")])
def test_a_misspelt_name_of_the_face(name, guess):
    with pytest.raises(AttributeError) as refused:
        getattr(ts, name)
    assert str(refused.value) == f"module 'tinsmith' has no attribute {name!r}. Did you mean `{guess}`?"


@pytest.mark.parametrize("function", [ts.op, ts.chain], ids=["op", "chain"])
def test_a_misspelt_option_is_named_with_the_nearest(function):
    with pytest.raises(ts.ArgumentError, match=r"takes no option `scrach`\n.*\nDid you mean `scratch`\?"):
        function("x[n] -> y[n]", scrach="t[n]")


@pytest.fixture
def double(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    return double


def test_an_op_in_a_notebook(double):
    shown = double._repr_html_()
    assert "<code>double</code>" in shown and "<code>x[n] -&gt; y[n]</code>" in shown


def test_a_gradient_check_is_short(double):
    check = ts.gradcheck(double, torch.rand(5))
    assert repr(check) == "<tinsmith gradient check of op `double`: right>"
    assert check._repr_html_().startswith("<pre>the gradient of op `double`")


def test_a_report_is_short_and_without_colours(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    report = ts.Report("op `conv`", [ts.Finding("TS301", "error", "conv.py", 3, 1, "0 < 0.5 is cut to 0")])
    assert repr(report) == "<tinsmith report of op `conv`: wrong, 1 error>"
    shown = report._repr_html_()
    assert shown.startswith("<pre>") and "0 &lt; 0.5 is cut to 0" in shown
    assert "\x1b" not in shown + str(report)
