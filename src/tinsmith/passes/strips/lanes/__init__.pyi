from ._loops import find_data_dependent_loops as find_data_dependent_loops
from ._loops import operations as operations
from ._run import run_in_lanes as run_in_lanes
