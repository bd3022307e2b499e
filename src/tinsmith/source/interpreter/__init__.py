"""The interpreter: a kernel of the IR run number by number in float64, with torch's autograd."""

from ._accesses import Access, How, Record, Recorder
from ._casts import Number
from ._expressions import NoRule
from ._run import Outcome, interpret, run
from ._watch import Watch

__all__ = ["Access", "How", "NoRule", "Number", "Outcome", "Record", "Recorder", "Watch", "interpret", "run"]
