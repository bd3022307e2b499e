"""Where gradients come from: generated, by the engine, or by a hand-written kernel."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
