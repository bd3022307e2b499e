"""tinsmith's own kernels.

Each is made by a factory `build(lang, **options)`. `lang` is the module of an engine, so that one source serves both;
the options are compile-time constants of the kernel. The factories import no engine.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
