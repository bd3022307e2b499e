"""The losses of tiny-cuda-nn, under its names and with its definitions and gradients."""

from __future__ import annotations

from ._loss import Loss, make_loss

__all__ = ["Loss", "make_loss"]
