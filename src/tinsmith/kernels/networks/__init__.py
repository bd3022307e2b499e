"""Kernels of fully fused networks: their layers, run by rows or by lanes, forwards, backwards and while learning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
