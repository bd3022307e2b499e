from ._decide import decide_sources as decide_sources
from ._decide import decide_task as decide_task
