"""The interpreter: a kernel of the IR run number by number in float64, with torch's autograd."""

from ._accesses import Access, Record
from ._run import Outcome, interpret, run

__all__ = ["Access", "Outcome", "Record", "interpret", "run"]
