"""Decision records have one form, and code that one shows is the code that is generated."""

import ast
import re

import pytest
import torch
from pages.blocks import ROOT

import tinsmith as ts
from tinsmith.calls import _pass_text

RECORDS = sorted((ROOT / "docs/about/decisions").glob("*.md"))
RECORD = ROOT / "docs/about/decisions/programs.md"
HEADS = ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_says_context_then_decision_then_consequences(record):
    heads = re.findall(r"^## (.+)$", record.read_text(encoding="utf-8"), re.MULTILINE)
    assert [head for head in heads if head in HEADS] == HEADS


def test_a_program_is_the_one_on_its_page(lang, monkeypatch):
    texts = []
    compile_text = _pass_text.PassText.compile

    def note(writer, text):
        texts.append(text)
        return compile_text(writer, text)

    monkeypatch.setattr(_pass_text.PassText, "compile", note)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3 * x[i]

    triple(torch.rand(5))
    (shown,) = re.findall(r"```python\n(.*?)```", RECORD.read_text(encoding="utf-8"), re.DOTALL)
    if lang.__name__ == "quadrants":  # the page shows Taichi's: its slot is a path, Quadrants' is a number
        shown = re.sub(r"\(\((\d),\)", r"(\1", shown)
    assert [ast.unparse(ast.parse(text)) for text in texts] == [ast.unparse(ast.parse(shown))]
