from ._additions import find_added_value as find_added_value
from ._additions import write_out_addition as write_out_addition
from ._dead_code import eliminate_dead_code as eliminate_dead_code
from ._dead_code import live_before as live_before
from ._declarations import declare_locals as declare_locals
from ._declarations import name_locals as name_locals
from ._inline_sizes import inline_sizes as inline_sizes
from ._simplify import simplify as simplify
