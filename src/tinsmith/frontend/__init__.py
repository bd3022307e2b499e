"""Read a kernel's Python source, analyze its syntax tree, and lower it to IR.

Other packages hold a kernel as a `Source` or as IR, and import no `ast`: tests/test_floors.py checks it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
