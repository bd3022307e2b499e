"""What has no adjoint's business is poisoned: a value that the analysis forgets shows as NaN."""

import pytest


@pytest.fixture(params=["0", "65536"], ids=["parallel", "serial"])
def poisoned(request, configure):
    """Fill uninitialized buffers with NaN, and run kernels in parallel and in series in turn."""
    configure(poison="1", serial_below=request.param)
