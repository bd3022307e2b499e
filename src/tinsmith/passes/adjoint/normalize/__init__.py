"""The first step of the adjoint: the kernels of an op as tasks in SSA form, with what has a gradient in each."""

from ._normalize import AdjointOptions, NormalForm, normalize_kernels
from ._reversible import Reversible, find_promised

__all__ = ["AdjointOptions", "NormalForm", "Reversible", "find_promised", "normalize_kernels"]
