from ._early_returns import guard_rest as guard_rest
from ._early_returns import nests as nests
from ._functions import inline_call as inline_call
from ._functions import lower_return as lower_return
from ._lower import LoweredKernel as LoweredKernel
from ._lower import lower as lower
