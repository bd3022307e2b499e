"""`op.explain()`: the most useful facts of an op in 25 lines, all of it on request, and a page for notebooks."""

import copy
import pickle

import pytest
import torch

import tinsmith as ts
from tinsmith.operation.reports import Explanation
from tinsmith.operation.reports._explanation import Section, summarize_sections


@pytest.fixture
def wave(lang):
    @ts.op("x[n], w[k] -> y[n]")
    @lang.kernel
    def wave(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            h = x[i]
            for j in range(w.shape[0]):
                h = lang.sin(h * w[j]) + h * h
            y[i] = h

    return wave


def call_in_all_ways(op):
    for wanted in ((True, False), (False, True), (True, True)):
        for dtype in (torch.float32, torch.float64):
            x, w = (torch.ones(5, dtype=dtype, requires_grad=one) for one in wanted)
            op(x, w).sum().backward()


def test_the_summary_has_25_lines_of_80_columns(wave):
    call_in_all_ways(wave)
    lines = wave.explain().splitlines()
    assert len(lines) <= 25 < len(wave.explain("all").splitlines())
    assert max(map(len, lines)) <= 80
    assert lines[0] == "op `wave`: x[n], w[k] -> y[n]"
    assert lines[1] == "gradient: generated from the kernels' source"
    assert any(line.startswith("    saved for the backward pass: ") for line in lines)
    assert any("reads x, w; writes y" in line for line in lines)
    assert lines[-1].endswith('all of it: explain("all")')
    assert not any("def wave" in line for line in lines)


def test_the_summary_before_a_call(wave):
    text = wave.explain()
    assert "generated from the kernels' source where they are covered" in text and "0 kinds of calls so far" in text


def test_explain_all_has_every_section(wave):
    call_in_all_ways(wave)
    text = wave.explain("all")
    for words in ("def wave_adjoint_0(", "program of `wave`", "compiled variants: ", "batches of `wave`: one launch"):
        assert words in text and words not in wave.explain()
    assert "\n\n".join(text.sections.values()) == text
    assert text.sections == wave.explain().sections


def test_a_notebook_gets_a_page(wave):
    call_in_all_ways(wave)
    text = wave.explain()
    page = text._repr_html_()
    assert page.startswith("<pre>op `wave`: x[n], w[k] -&gt; y[n]\n")
    assert page.count("<details>") == len(text.sections) == page.count("</details>")
    assert "def wave_adjoint_0(" in page
    assert "<summary>passes</summary>" in wave.explain(passes=True)._repr_html_()


def test_an_explanation_is_a_string(wave):
    text = wave.explain()
    assert isinstance(text, str) and repr(text) == str(text)
    for other in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert isinstance(other, Explanation) and other == text and other.sections == text.sections


def test_an_unknown_detail_is_refused(wave):
    with pytest.raises(ts.ArgumentError, match="expected  'summary' or 'all'"):
        wave.explain("everything")


def test_a_layer_passes_the_detail_on(lang):
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    tube = (
        ts.Tube()
        .register_input_tensor((3,), torch.float32, "x", True)
        .register_output_tensor((3,), torch.float32, "y", True)
    )
    tube = tube.register_kernel(double, ["x", "y"]).finish()
    tube(torch.ones(3))
    assert "launch double(x, y)" in tube.explain("all") and "launch double" not in tube.explain()


def test_long_sections_are_cut_after_a_whole_entry():
    long = "word " * 100
    sections = [Section(["first"], 3), Section([long] * 20, 7), Section([f"entry {number}" for number in range(20)], 5)]
    lines = summarize_sections(sections, "last").splitlines()
    assert len(lines) <= 25 and lines[0] == "first" and lines[-1] == "last"
    assert [line for line in lines if line.startswith("  ... ")] == ["  ... 12 more", "  ... 16 more"]
    assert sum(line.endswith(" ...") for line in lines) == 8


def test_unused_rows_of_short_sections_go_to_others():
    sections = [Section([], 10), Section([f"entry {number}" for number in range(24)], 2)]
    assert len(summarize_sections(sections, "last").splitlines()) == 25
    assert "more" not in summarize_sections(sections, "last")
