"""The spec language: the inputs and outputs of an op, with the dims of every array.

    spec   =  [items] "->" items              "x[n], k[m] -> y[n - m + 1]"

`_parse` parses text, `_agreement` checks the rules between items, and `_solve` computes the sizes of one call. Nothing
here depends on tensors, kernels or engines.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
