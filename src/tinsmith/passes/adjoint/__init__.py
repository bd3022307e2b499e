"""The adjoint: from the kernels of an op to the launches that its gradient takes. `ADJOINT` has its passes in order.

    kernels --normalize--> tasks in SSA form --decide--> a plan of each --emit--> their reverses --assemble--> a program

Each folder is a step. `_ssa` describes the form that is reversed, `_plan` the table of what is decided, `_program` what
results. A kernel is reversed once, however often it is launched. The adjoint of an expression is in
`analyses._derivatives`, that of a statement in `emit._frame_reversal`, that of a loop in `emit._loop_reversal`. Maxima
and minima of arrays, `atomic_max(y[i], v)`, become comparisons with the value that won before anything is reversed:
`passes.extremes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
