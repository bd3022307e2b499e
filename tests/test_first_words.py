"""What a user sees who mistypes, and what a prompt or a notebook shows of an object: short, and never with colors."""

import linecache
import re

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
    """Execute a program as a prompt does with typed text."""
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


WHY = {
    "<stdin>": "Before Python 3.13, the plain prompt keeps no source",
    "<string>": "Code that runs by `exec`",
    "<timed exec>": "A cell that begins with `%%time` keeps no source",
    "<magic-timeit>": "A cell that begins with `%%timeit` keeps no source",
}


@pytest.mark.parametrize("path", WHY)
def test_a_kernel_without_source_says_what_to_do(lang, path):
    with pytest.raises(ts.KernelError) as refused:
        typed(lang, path)
    assert WHY[path] in str(refused.value) and "Put it into a file" in str(refused.value)
    # The frames of `inspect` that an OSError has say nothing more.
    assert refused.value.__cause__ is None and refused.value.__suppress_context__


@pytest.mark.parametrize(("name", "guess"), [("ops", "op"), ("gradchek", "gradcheck"), ("scann", "scan")])
def test_a_misspelt_name_of_the_face(name, guess):
    with pytest.raises(AttributeError) as refused:
        getattr(ts, name)
    assert str(refused.value) == f"module 'tinsmith' has no attribute {name!r}. Did you mean `{guess}`?"


@pytest.mark.parametrize("function", [ts.op, ts.chain], ids=["op", "chain"])
def test_a_misspelt_option_is_named_with_the_nearest(function):
    with pytest.raises(ts.ArgumentError, match=r"has no option `scrach`\n.*\nDid you mean `scratch`\?"):
        function("x[n] -> y[n]", scrach="t[n]")


COMPARED = ["off from the oracle by", "off from differences by"]


def _find_cells(page):
    """Return the texts of all cells of the tables of a page."""
    return re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", page, re.DOTALL)


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
    assert shown.startswith("<table>") and "op double" in shown and ">x[n] -&gt; y[n]</td>" in shown


def test_a_gradient_check_is_short(double):
    check = ts.gradcheck(double, torch.rand(5))
    assert repr(check) == "<tinsmith gradient check of op `double`: right>"
    shown = check._repr_html_()
    assert re.match(r"<table><caption[^>]*>the gradient of op `double`.*: right</caption>", shown)
    assert _find_cells(shown)[:8] == ["input", "shape", *COMPARED, "x", "(5)", *_find_cells(shown)[6:8]]
    assert all(float(one) < 1e-4 for one in _find_cells(shown)[6:8])
    assert _find_cells(shown)[8:10] == ["vmap(grad)", "right"]


def test_a_report_is_short_and_without_colors(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    report = ts.Report("op `conv`", [ts.Finding("TS301", "error", "conv.py", 3, 1, "0 < 0.5 is cut to 0")])
    assert repr(report) == "<tinsmith report of op `conv`: wrong, 1 error>"
    shown = report._repr_html_()
    assert _find_cells(shown)[5:8] == ["conv.py:3:1", "error", "TS301"] and "0 &lt; 0.5 is cut to 0" in shown
    assert "check of op `conv`" in shown and shown.endswith("wrong: 1 error</p>") and "<pre>" not in shown
    assert "\x1b" not in shown + str(report)


@pytest.mark.parametrize(
    ("call", "expected", "guess"),
    [
        (lambda: ts.scan(None, torch.ones(2), lenght=3), "ts.scan has no option `lenght`", "`length`"),
        (lambda: ts.scan(None, torch.ones(2), params=3), "ts.scan has no option `params`", "`parameters`"),
        (lambda: ts.scan.explain(None, torch.ones(2), lenght=3), "ts.scan.explain has no option", "`length`"),
        (lambda: ts.scan.check(None, torch.ones(2), lenght=3), "ts.scan.check has no option `lenght`", "`length`"),
        (lambda: ts.rollout(None, input={}, outputs={}), "ts.rollout has no option `input`", "`inputs`"),
        (lambda: ts.EmptyTin(devise="cpu"), "ts.EmptyTin has no option `devise`", "`device`"),
        (lambda: ts.Tube(enable_backwards=True), "ts.Tube has no option `enable_backwards`", "`enable_backward`"),
    ],
    ids=["scan", "params", "explain", "check", "rollout", "EmptyTin", "Tube"],
)
def test_a_misspelled_option(call, expected, guess):
    with pytest.raises(ts.ArgumentError) as refused:
        call()
    assert expected in str(refused.value) and f"Did you mean {guess}?" in str(refused.value)


@pytest.mark.parametrize("arguments", [("spec", "kernel"), ("kernel", "spec")], ids=", ".join)
def test_a_kernel_beside_its_spec(arguments):
    def kernel():
        pass

    given = {"spec": "x[n] -> y[n]", "kernel": kernel}
    with pytest.raises(ts.ArgumentError) as refused:
        ts.op(*[given[one] for one in arguments])
    assert "ts.op got too many arguments" in str(refused.value)
    assert 'Write ts.op("x[n] -> y[n]")(kernel); options are given by keyword.' in str(refused.value)


def test_init_of_an_op_is_a_dict():
    with pytest.raises(ts.ArgumentError, match=r'(?s)`init` is not a dict.*Write init=\{"y": "empty"\}'):
        ts.op("x[n] -> y[n]", init="empty")  # pyright: ignore[reportArgumentType]


def test_the_step_of_a_scan_comes_first(double):
    with pytest.raises(ts.ArgumentError, match=r"Pass the step first: `ts.scan\(step, state, ...\)`"):
        ts.scan(torch.ones(3), double, length=3)


def test_the_length_of_a_scan_is_given_by_keyword(double):
    with pytest.raises(ts.ArgumentError, match="Pass `length=10` if that is the number of steps"):
        ts.scan(double, torch.ones(3), 10)


@pytest.fixture
def swappable(lang):
    @ts.op("image[h, w], points[n, 2] -> y[n]")
    @lang.kernel
    def sample(image: lang.types.ndarray(), points: lang.types.ndarray(), scale: lang.f32, y: lang.types.ndarray()):
        for i in y:
            y[i] = scale * image[0, 0] * points[i, 0]

    return sample


SWAPPED = {
    "two tensors": ((torch.ones(5, 2), torch.ones(3, 4), 2.0), "points, image, scale"),
    "tensor and number": ((torch.ones(3, 4), 2.0, torch.ones(5, 2)), "image, scale, points"),
}


@pytest.mark.parametrize("case", SWAPPED)
def test_swapped_arguments_are_named(swappable, case):
    arguments, names = SWAPPED[case]
    with pytest.raises(ts.TinsmithError) as refused:
        swappable(*arguments)
    hint = f"Are arguments swapped? They fit as ({names}), and the call is `sample(image, points, scale)`."
    assert str(refused.value).splitlines()[-2] == hint


@pytest.mark.filterwarnings("ignore:the spec of op `step` lists its inputs in another order")
def test_the_order_of_the_spec_is_proposed_where_a_scan_fits_it(lang):
    @ts.op("x[n], v[n], k[] -> x_next[n], v_next[n]")
    @lang.kernel
    def step(
        x: lang.types.ndarray(),
        k: lang.f32,
        v: lang.types.ndarray(),
        x_next: lang.types.ndarray(),
        v_next: lang.types.ndarray(),
    ):
        for i in x:
            v_next[i] = v[i] - k * x[i]
            x_next[i] = x[i] + v[i]

    with pytest.raises(ts.TinsmithError, match='They fit as .x, v, k.*With `order="spec"`') as refused:
        ts.scan(step, (torch.ones(3), torch.zeros(3)), length=2, parameters=torch.tensor(0.1))
    assert "Are arguments swapped?" in str(refused.value)
    again = ts.op("x[n], v[n], k[] -> x_next[n], v_next[n]", order="spec")(step.kernel)
    (x, v), _ = ts.scan(again, (torch.ones(3), torch.zeros(3)), length=1, parameters=torch.tensor(0.5))
    assert x.tolist() == [1.0] * 3 and v.tolist() == [-0.5] * 3


NOT_SWAPPED = {
    "no order fits": (torch.ones(5, 3), torch.ones(3, 4), 2.0),
    "too few": (torch.ones(5, 2), torch.ones(3, 4)),
}


def test_arguments_in_order_are_not_called_swapped(swappable, lang):
    @ts.op("inout a[n], inout b[n] ->")
    @lang.kernel
    def swap(a: lang.types.ndarray(), b: lang.types.ndarray()):
        for i in a:
            t = a[i]
            a[i] = b[i]
            b[i] = t

    z = torch.ones(8)
    with pytest.raises(ts.ArgumentError, match="`a` and `b` of op `swap` share memory") as shared:
        swap(z[:5], z[3:])
    with pytest.raises(ts.ArgumentError, match="`scale` of op `sample` was given twice") as twice:
        swappable(torch.ones(3, 4), torch.ones(5, 2), 2.0, scale=3.0)
    assert "swapped" not in str(shared.value) + str(twice.value)


@pytest.mark.parametrize("case", NOT_SWAPPED)
def test_other_refusals_do_not_speak_of_an_order(swappable, case):
    arguments = NOT_SWAPPED[case]
    with pytest.raises(ts.TinsmithError) as refused:
        swappable(*arguments)
    assert "swapped" not in str(refused.value)


def test_a_lambda_is_no_kernel(lang):
    function = lang.func(lambda v: 2 * v)

    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = function(x[i])

    with pytest.raises(
        ts.KernelError, match=r"(?s)`<lambda>` is not defined by a `def`.*test_first_words.py:\d+\nWrite it"
    ):
        ts.op("x[n] -> y[n]")(double)(torch.ones(3))
