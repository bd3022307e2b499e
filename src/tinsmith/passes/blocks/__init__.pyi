from ._in_order import run_blocks_in_order as run_blocks_in_order
from ._spread import spread_blocks as spread_blocks
