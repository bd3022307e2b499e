"""Clean-up passes, which change no result: they remove what is not needed, and leave code that reads as if written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
