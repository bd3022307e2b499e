"""The interpreter: a kernel of the IR run number by number in float64, with torch's autograd."""

from ._casts import Number
from ._expressions import NoRule
from ._run import interpret
from ._watch import How, Recorder, Watch

__all__ = ["How", "NoRule", "Number", "Recorder", "Watch", "interpret"]
