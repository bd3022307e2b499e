"""Rollouts: Python loops over kernels as functions of tensors."""

from ._rollout import Rollout, rollout

__all__ = ["Rollout", "rollout"]
