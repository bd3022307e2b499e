"""Every pitfall is right, refused, or named in its line: the rows of the pages docs/about/pitfalls."""

import ast
import re
from pathlib import Path

import pytest
from pages import pitfall_pages
from pages.blocks import without_outputs
from pages.pitfalls import REFUSED, REPORTED, RIGHT, ROWS, TEXTS, marked, text_of
from pages.pitfalls.gradients import inputs_of, op_of

import tinsmith as ts
from support.engine_keeper import ENGINES, Configuration
from support.findings import sanitize_call
from tinsmith.linter import lint_file

pytestmark = pytest.mark.thinned(4)

BY_NAME = {row.name: row for row in ROWS}
SINGLE = "32_f32_local_in_f64"  # of an engine that was not told otherwise
RUN = [row.name for row in ROWS if row.spec and row.name != SINGLE]
COMPILED = [name for name in RUN if name != "51_out_of_bounds"]  # it would read other memory
AFTER_A_RUN = {"51_out_of_bounds"}
OF_A_SETTING = {"22_if_flattened_nan"}  # an option of `init`, which no file says
OF_NUMBERS = {"TS305", "TS408", "TS409", "TS410"}  # wrong on every engine, which the message need not say
VERDICTS = {"right": set(), "wrong": {"TS701"}, "differs": set(), "refuses": {"TS703"}}  # at a kink either side will do


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("name", TEXTS)
def test_lint_reports_exactly_the_marked_lines(name, engine_name):
    text = text_of(name, engine_name)
    findings = lint_file("kernels.py", text)
    assert {(one.rule, one.line) for one in findings} == marked(text, engine_name)


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("name", TEXTS)
def test_lint_names_the_engine_that_is_wrong(name, engine_name):
    given = getattr(BY_NAME[name], engine_name)
    findings = lint_file("kernels.py", text_of(name, engine_name))
    naming = [one for one in findings if engine_name.capitalize() in one.message]
    if given.startswith(("wrong", "dies", "refuses, ")) and name not in AFTER_A_RUN | OF_A_SETTING:
        assert naming or {one.rule for one in findings} & OF_NUMBERS
    assert {one.severity for one in naming} <= {"warning"}


@pytest.fixture
def op(lang64, engine, request):
    row = BY_NAME[request.getfixturevalue("name")]
    # An op is refused for an index that is outside in every call, unless it checks its indices itself.
    return op_of(row, engine, check_bounds=row.name == "51_out_of_bounds")


@pytest.fixture
def inputs(request):
    return inputs_of(BY_NAME[request.getfixturevalue("name")])


@pytest.mark.parametrize("name", RUN)
def test_the_sanitizer_reports_exactly_the_marked_lines(name, engine, op, inputs):
    findings = sanitize_call(op, *inputs)
    assert {(one.rule, one.line) for one in findings} == marked(text_of(name, engine), "sanitizer")


@pytest.mark.parametrize("name", [SINGLE])
def test_the_sanitizer_names_what_is_single_by_default(name, lang, engine, inputs):
    findings = sanitize_call(op_of(BY_NAME[name], engine), *inputs)
    assert {(one.rule, one.line) for one in findings} == marked(text_of(name, engine), "sanitizer")


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", COMPILED)
def test_the_gradient_is_right(name, op, inputs):
    assert ts.gradcheck(op, *inputs).ok


@pytest.mark.thinned(9)
@pytest.mark.parametrize("name", COMPILED)
def test_the_engine_s_gradient_is_what_the_page_says(name, engine, op, inputs):
    """On Quadrants with its gradient stack, as tests run it."""
    given = getattr(BY_NAME[name], engine)
    word = re.search(r"(\w+) (?:with its gradient stack|through tinsmith)", given) or re.match(r"(\w+)", given)
    findings = ts.gradcheck(op, *inputs, adjoint="engine").findings
    errors = [one for one in findings if one.severity == "error"]
    assert {one.rule for one in errors} == VERDICTS[word[1]]
    for one in errors:
        line = text_of(name, engine).splitlines()[one.line - 1]
        about = re.search(r"`(\w+)[\[`]", one.message)
        assert f"{about[1]}[" in line if one.rule == "TS701" else "def k(" in line or "@ti.kernel" in line


def test_each_row_names_tests_that_are_there():
    for row in ROWS:
        assert row.does in (RIGHT, REFUSED, REPORTED)
        assert row.shown, row.name
        for path, function in pitfall_pages.tests_of(row):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert function in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}, function


def test_every_reported_line_has_a_mark():
    for row in ROWS:
        if row.does == REPORTED:
            text = text_of(row.name, "taichi")
            assert marked(text, "taichi") | marked(text, "sanitizer"), row.name


def test_each_pitfall_with_tests_has_a_row():
    files = {path.name for path in Path(__file__).parent.glob("test_[0-9]*.py")}
    assert files == {
        path.name for row in ROWS for path, _ in pitfall_pages.tests_of(row) if path.parent == Path(__file__).parent
    }
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert TEXTS.keys() <= BY_NAME.keys()


def test_the_pages_are_what_the_rows_say(engine_keeper):
    """Their numbers too, which the engines give anew."""
    for engine in ENGINES:
        engine_keeper.ensure(engine, Configuration(default_fp="f64"))
    pages = pitfall_pages.pages()
    assert set(pages) == set(pitfall_pages.FOLDER.iterdir())
    stale = [path.name for path, text in pages.items() if without_outputs(path.read_text(encoding="utf-8")) != text]
    assert not stale, "run ./scripts/docs write"
