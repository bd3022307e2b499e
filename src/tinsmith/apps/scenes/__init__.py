"""Scenes for apps to learn: the views of a dataset or of the built-in scene; evaluation and viewer of a training."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
