"""The spec language: what an op takes and gives, with the dims of every array.

    spec   =  [items] "->" items              "x[n], k[m] -> y[n - m + 1]"

Text becomes values in `_parse`, rules between items are checked in `_agreement`, and the sizes
of one call are found in `_solve`. Nothing here knows tensors, kernels or engines.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
