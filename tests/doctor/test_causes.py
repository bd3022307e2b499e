"""One loop bound that is too great takes many indices outside: the first is told, the others follow from it."""

import json
from pathlib import Path

import torch

import tinsmith as ts
from tinsmith.doctor import as_json, check


def test_one_wrong_bound_is_reported_once(lang):
    @ts.op("x[n], v[n] -> y[n], w[n]")
    @lang.kernel
    def step(x: lang.types.ndarray(), v: lang.types.ndarray(), y: lang.types.ndarray(), w: lang.types.ndarray()):
        for i in range(x.shape[0] + 1):
            w[i] = v[i] + 1.0  # tinsmith: ignore[TS109]
            y[i] = x[i] + w[i]  # tinsmith: ignore[TS109]

    report = check(step, torch.rand(3), torch.rand(3))
    outside = [one for one in report.findings if one.rule == "TS604"]
    (cause,) = [one for one in outside if one.follows is None]
    assert len(outside) == 5
    assert {one.follows for one in outside} == {None, (cause.path, cause.line, cause.column)}
    text = " ".join(str(report).split())
    assert f"4 more findings follow from this: TS604 in lines {cause.line}-{cause.line + 1}" in text
    assert text.count("error TS604") == 1
    assert max(map(len, str(report).splitlines())) <= 80
    findings = [one for one in json.loads(as_json(report, Path.cwd()))["findings"] if one["rule"] == "TS604"]
    assert [one["follows"]["line"] for one in findings if "follows" in one] == [cause.line] * 4
    page = report.html()
    assert page.count('<b class="error">error <a href="#rule-TS604">TS604</a></b>') == 1
    assert page.count(f"4 more findings follow from this: TS604 in lines {cause.line}-{cause.line + 1}") == 2
    assert page.count('class="row marked error"') == 2


def test_two_causes_are_two(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def neighbors(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i - 1] + x[i + 1]  # tinsmith: ignore[TS109]

    outside = [one for one in check(neighbors, torch.rand(3)).findings if one.rule == "TS604"]
    assert [one.follows for one in outside] == [None, None]
