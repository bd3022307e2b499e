"""Simulations of many steps as one differentiable operation."""

from ._scan import scan
from ._steps import Given, Step, make_step
from ._trees import take_apart

__all__ = ["Given", "Step", "make_step", "scan", "take_apart"]
