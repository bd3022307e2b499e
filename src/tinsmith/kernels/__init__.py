"""Our own kernels.

Each is a factory `build(lang, **static)`: `lang` is the module of an engine, so that one text serves
both, and what is static is fixed when the kernel is built. The factories import no engine.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
