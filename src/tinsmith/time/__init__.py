"""Time: simulations of many steps as one differentiable operation."""

from ._scan import scan
from ._steps import Given, Step, step_of
from ._trees import take_apart

__all__ = ["Given", "Step", "scan", "step_of", "take_apart"]
