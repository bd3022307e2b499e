"""Taichi and Quadrants kernels as differentiable PyTorch operations.

    ts.init                    starts an engine to match torch
    ts.op, ts.chain            make an operation of a kernel, or of several
    ts.check                   checks an operation: its kernels and its gradient
    ts.scan, ts.rollout        run simulations of thousands of steps
    ts.Tin, EmptyTin, Tube     layers of kernels that work on fields
    ts.nn, ts.render           networks; rendering

`help(ts.op)` describes one name. This file defines nothing: `__init__.pyi` lists the names and where they come from.
A subpackage is loaded when one of its names is first used, so that `import tinsmith` stays fast.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import lazy_loader

from . import _offers, _suggestions, _tracebacks

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = _suggestions.attach_suggestions(__name__, __getattr__, __all__)
_offers.checking.load_by(lambda: __getattr__("check"))
_offers.checking_scan.load_by(lambda: __getattr__("check"))
_offers.describing_origin.load_by(lambda: __getattr__("check"))
_offers.leaving_programs.load_by(lambda: __getattr__("init"))
_tracebacks.install()
