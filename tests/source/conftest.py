"""What has no adjoint's business is poisoned: a value that the analysis forgets shows as NaN."""

import pytest

from tinsmith._config import config


@pytest.fixture(params=["0", "65536"], ids=["parallel", "serial"])
def poisoned(request, monkeypatch):
    """Buffers that nobody may read are filled with NaN; kernels run in parallel and in series in turn."""
    monkeypatch.setenv("TINSMITH_POISON", "1")
    monkeypatch.setenv("TINSMITH_SERIAL_BELOW", request.param)
    config.cache_clear()
    yield
    monkeypatch.undo()
    config.cache_clear()
