"""Code that a decision record shows is the code that there is."""

import ast
import re

import torch
from pages.blocks import ROOT

import tinsmith as ts
from tinsmith.bridge import _pass_text

RECORD = ROOT / "docs/about/decisions/programs.md"


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
