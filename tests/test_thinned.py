"""The ordinary run leaves out cases of what has very many, but no function whole."""

import pytest

from support.thinned import kept


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100])
def test_every_function_keeps_a_case_and_no_more_than_its_part(count: int) -> None:
    for name in map(str, range(50)):
        found = kept(name, count, 4)
        assert found == kept(name, count, 4) and max(found) < count
        assert count // 4 <= len(found) <= -(-count // 4)


def test_functions_differ_in_what_they_keep_so_that_no_engine_is_left_out() -> None:
    assert {kept(name, 100, 4)[0] for name in map(str, range(50))} == {0, 1, 2, 3}
    assert {kept(name, 2, 4)[0] for name in map(str, range(50))} == {0, 1}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", range(30))
def test_the_mark_thins_out(case: int, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("--slow") or "slow" in (request.config.getoption("markexpr") or "")
    name = request.node.nodeid.partition("[")[0]
    assert everything or case in kept(name, 30, 3)
