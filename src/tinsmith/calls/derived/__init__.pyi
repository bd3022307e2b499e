from ._block_core import BlockedCore as BlockedCore
from ._higher import SecondOrder as SecondOrder
from ._higher import push_forward as push_forward
from ._records import find_recorded as find_recorded
from ._records import find_recorded_at as find_recorded_at
from ._seeds import SeededCore as SeededCore
from ._tangents import TangentCore as TangentCore
