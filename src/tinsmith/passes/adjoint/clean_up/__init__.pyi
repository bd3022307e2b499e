from ._gathers import CleanUpOptions as CleanUpOptions
from ._gathers import gather_additions as gather_additions
from ._handed_on import hand_on_adjoints as hand_on_adjoints
from ._whole_gradients import store_whole_gradients as store_whole_gradients
