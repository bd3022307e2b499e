"""A small census: what an engine's own reverse mode gets wrong is named by lint, of the source alone."""

import pytest

from census import _engines, _examples
from support.engine_keeper import ENGINES
from tinsmith.linter import SEVERITIES

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.mark.costly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ENGINES)
def test_kernels_with_wrong_gradients_are_reported_by_lint(name, tmp_path):
    tried = _engines.tried(name, range(100), tmp_path / "log", jobs=2)
    assert not _engines.unnamed(tried)
    kinds = [one.kind for one in tried]
    assert kinds.count(_engines.WRONG) >= 10  # there is something to name
    assert kinds.count(_engines.RIGHT) >= 10
    rows = list(_engines.table({name: tried}))
    assert rows[2].startswith(f"| {name.capitalize()} | 100 | ")


@pytest.mark.parametrize("name", ENGINES)
def test_the_examples_that_an_engine_ships(name):
    """No crash, and nothing that is wrong whoever differentiates: they run."""
    linted = _examples.linted(name)
    assert linted.files >= 3
    assert {one.severity for one in linted.findings} <= set(SEVERITIES)
    assert not [str(one) for one in linted.findings if one.severity == "error"]


def test_outcomes():
    def line(outcome, check="gradients", words=""):
        return _engines.kind({"outcome": outcome, "check": check, "words": words})

    assert line("agree") == _engines.RIGHT
    assert line("disagree") == _engines.WRONG
    assert line("disagree", "values") == _engines.ASIDE
    assert line("refused", words="taichi cannot differentiate") == _engines.NOT
    assert line("refused", words="it would end the process") == _engines.DEAD
    assert line("crash") == _engines.DEAD
