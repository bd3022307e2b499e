"""tiny-cuda-nn's losses by name, with its definitions and its gradients."""

from __future__ import annotations

from ._loss import Loss, make_loss

__all__ = ["Loss", "make_loss"]
