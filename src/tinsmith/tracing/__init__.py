"""What torch is doing now (tracing, transforming, recording), with all of torch's private names in one file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
