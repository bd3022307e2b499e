"""For tests of kernels: an assertion; and what `pytest --tinsmith-check` runs."""

from ._assertion import assert_differentiable

__all__ = ["assert_differentiable"]
