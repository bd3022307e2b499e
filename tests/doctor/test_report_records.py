"""JSON and SARIF: what scanners require of a file stands in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import tinsmith as ts
from tinsmith.doctor import Report, as_json, as_sarif
from tinsmith.linter import RULES, Edit, Finding


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "repo" / "my kernels"
    folder.mkdir(parents=True)
    (folder / "swärm.py").write_text("a = 1\nb = 2\n", "utf-8")
    return tmp_path / "repo"


@pytest.fixture
def report(root):
    path = str(root / "my kernels" / "swärm.py")
    return Report(
        "1 file",
        [
            Finding("TS301", "error", path, 2, 5, "`b` is an integer", "b = 2.0", fix=Edit((2, 5), (2, 6), "2.0")),
            Finding("TS303", "warning", path, 2, 0, "infinite slope"),
            Finding("TS501", "info", str(root.parent / "elsewhere.py"), 7, 1, "unused"),
        ],
        looked=("lint",),
    )


def test_json(report, root):
    whole = json.loads(as_json(report, root))
    assert {name: whole[name] for name in ("ok", "complete", "gradients")} == {
        "ok": False,
        "complete": True,
        "gradients": {},
    }
    assert whole["findings"][0] == {
        "rule": "TS301",
        "severity": "error",
        "path": "my kernels/swärm.py",
        "line": 2,
        "column": 5,
        "message": "`b` is an integer",
        "remedy": "b = 2.0",
        "engines": [],
        "fix": {"start": {"line": 2, "column": 5}, "end": {"line": 2, "column": 6}, "replacement": "2.0"},
    }
    assert [one["path"] for one in whole["findings"]][2] == str(root.parent / "elsewhere.py")


def test_sarif_says_what_it_is(report, root):
    whole = json.loads(as_sarif(report, root))
    assert set(whole) == {"$schema", "version", "runs"}
    assert whole["version"] == "2.1.0" and whole["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = whole["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("tinsmith", ts.__version__)
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == root.as_uri() + "/"


def test_sarif_explains_every_rule(report, root):
    rules = json.loads(as_sarif(report, root))["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for rule in rules:
        assert re.fullmatch(r"([A-Z][a-z]*)+", rule["name"])
        assert rule["shortDescription"]["text"].endswith(".") and rule["fullDescription"]["text"]
        assert f"tinsmith: ignore[{rule['id']}]" in rule["help"]["text"]
        assert rule["help"]["markdown"]
    assert len({rule["name"] for rule in rules}) == len(rules)


def test_sarif_places_every_finding(report, root):
    (run,) = json.loads(as_sarif(report, root))["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result, finding in zip(run["results"], report.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule
        assert result["message"]["text"].startswith(finding.message)
    assert [one["level"] for one in run["results"]] == ["error", "warning", "note"]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    inside = {"uri": "my%20kernels/sw%C3%A4rm.py", "uriBaseId": "%SRCROOT%"}
    assert places[0] == {"artifactLocation": inside, "region": {"startLine": 2, "startColumn": 5}}
    assert places[1] == {"artifactLocation": inside, "region": {"startLine": 2}}
    assert places[2]["artifactLocation"] == {"uri": (root.parent / "elsewhere.py").as_uri()}


def test_sarif_proposes_fixes(report, root):
    """As the standard has it: lines and columns from 1, the end after the last character that goes."""
    first, *others = json.loads(as_sarif(report, root))["runs"][0]["results"]
    ((change,),) = (one["artifactChanges"] for one in first["fixes"])
    assert change["artifactLocation"] == first["locations"][0]["physicalLocation"]["artifactLocation"]
    (replacement,) = change["replacements"]
    region, path = replacement["deletedRegion"], Path(report.findings[0].path)
    lines = path.read_text("utf-8").splitlines()
    line = lines[region["startLine"] - 1]
    assert region["startLine"] == region["endLine"]
    fixed = line[: region["startColumn"] - 1] + replacement["insertedContent"]["text"] + line[region["endColumn"] - 1 :]
    assert fixed == "b = 2.0"
    assert first["fixes"][0]["description"]["text"]
    assert not any("fixes" in one for one in others)


def test_records_contain_the_remedy(report, root):
    results = json.loads(as_sarif(report, root))["runs"][0]["results"]
    assert results[0]["message"]["text"] == "`b` is an integer\n\nWrite:\n\nb = 2.0"
    assert results[1]["message"]["text"] == "infinite slope"


def fingerprint(finding, root):
    result = json.loads(as_sarif(Report("f", [finding]), root))["runs"][0]["results"][0]
    return result["partialFingerprints"]["primaryLocationLineHash"]


def test_a_finding_is_known_again_when_lines_are_added_above(report, root):
    finding = report.findings[0]
    first = fingerprint(finding, root)
    path = Path(finding.path)
    path.write_text("# a new line\n\n" + path.read_text("utf-8"), "utf-8")
    moved = Finding(finding.rule, finding.severity, finding.path, 4, 5, finding.message)
    assert fingerprint(moved, root) == first
    other = Finding("TS302", finding.severity, finding.path, 4, 5, finding.message)
    assert fingerprint(other, root) != first


@pytest.mark.parametrize("rule", ["TS001", "TS002"])
def test_incomplete_checks_are_no_success(root, rule):
    report = Report("f", [Finding(rule, "error", str(root / "f.py"), 0, 0, "could not")])
    (run,) = json.loads(as_sarif(report, root))["runs"]
    assert run["invocations"] == [{"executionSuccessful": False}]
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert json.loads(as_json(report, root))["complete"] is False
