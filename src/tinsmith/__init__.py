"""Taichi and Quadrants kernels as PyTorch operations.

The public face: names are handed on from the rooms below, nothing is defined here. Which names, and
from where, `__init__.pyi` says; each room is loaded when one of its names is first used, so that
`import tinsmith` costs nothing of what a script does not use.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import lazy_loader

from . import _offers, _suggestions

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = _suggestions.attach_suggestions(__name__, __getattr__, __all__)
_offers.checking.load_by(lambda: __getattr__("check"))
_offers.checking_scan.load_by(lambda: __getattr__("check"))
_offers.describing_origin.load_by(lambda: __getattr__("check"))
