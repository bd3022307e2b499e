"""For tests of kernels: an assertion, and the plugin of `pytest --tinsmith-check`."""

from ._assertion import assert_differentiable

__all__ = ["assert_differentiable"]
