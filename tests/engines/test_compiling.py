"""The lock of what compiles: what it holds back meanwhile comes back."""

import gc

import pytest

from tinsmith.engines import COMPILING


@pytest.fixture(params=[True, False], ids=["collects", "does_not_collect"])
def collects(request):
    was_enabled = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was_enabled else gc.disable)()


def test_the_garbage_collector_is_paused_and_restored(collects):
    with COMPILING:
        assert not gc.isenabled()
        with COMPILING:
            pass
        assert not gc.isenabled()
    assert gc.isenabled() == collects
    with pytest.raises(ZeroDivisionError), COMPILING:
        raise ZeroDivisionError
    assert gc.isenabled() == collects
