from ._loops import find_loops_ended_by_data as find_loops_ended_by_data
from ._loops import operations as operations
from ._run import run_in_lanes as run_in_lanes
