"""From a kernel to something launchable: what it reads and writes, its checks, its compiled forms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
