from ._normalize import AdjointOptions as AdjointOptions
from ._normalize import NormalForm as NormalForm
from ._normalize import normalize_kernels as normalize_kernels
from ._reversible import Reversible as Reversible
from ._reversible import find_promised as find_promised
