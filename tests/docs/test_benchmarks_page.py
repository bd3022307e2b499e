"""The page of benchmarks says what the results say, and its plots are drawn from them."""

import pytest
from pages import benchmarks_page, plots, results

TABLE = """# A title

| what | ours | against | ratio or difference | to hold |  |
|---|---|---|---|---|---|
| a call | ours: 2 us | theirs: 8 us | 4 x faster | >= 4 x faster | held |
| a call | ours: 2 us | torch: 1 us | 2 x its time | <= 1.5 x its time | MISSED |
| a call | ours: 2 us | other: 1 us | 2 x its time |  |  |

## Times

| elements | 1 | 10,000 |
|---|---:|---:|
| ts.op on taichi | 1.5 | 2,000 |
"""


def test_the_page_is_that_of_the_results():
    stale = [path.name for path, text in benchmarks_page.pages().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run ./scripts/docs write"


def test_the_plots_are_those_of_the_results():
    assert not plots.stale(), "run ./scripts/docs write"


def test_every_missed_target_is_listed():
    page = benchmarks_page.PAGE.read_text(encoding="utf-8")
    for path in results.FOLDER.glob("*.md"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("| MISSED |"):
                assert line.removesuffix(" MISSED |") in page


def test_results_are_read_as_they_were_written(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "a.md").write_text(TABLE, encoding="utf-8")
    assert results.files() == ["a.md"] and results.title_of("a.md") == "A title"
    assert [bar.verdict for bar in results.bars_of("a.md")] == ["held", "MISSED"]
    heads, row = results.table_of(TABLE, "Times")
    assert [results.number(cell) for cell in (*heads[1:], *row[1:])] == [1, 10_000, 1.5, 2_000]
    assert results.number("2.24 ms") == pytest.approx(0.00224) and results.number("") is None
