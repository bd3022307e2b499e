"""Passes over generated statements that change no result: what is not needed goes, what is left reads as if written."""

from ._called import called
from ._inlined import inlined
from ._polished import polished
from ._pruned import live_before, pruned, pruned_tasks
from ._scoped import scoped
from ._tidied import tidied

__all__ = ["called", "inlined", "live_before", "polished", "pruned", "pruned_tasks", "scoped", "tidied"]
