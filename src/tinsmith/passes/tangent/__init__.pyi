from ._kernel import Tangent as Tangent
from ._kernel import TangentOptions as TangentOptions
from ._kernel import UnneededOptions as UnneededOptions
from ._kernel import differentiate as differentiate
from ._kernel import drop_idle_results as drop_idle_results
from ._kernel import drop_unneeded as drop_unneeded
from ._kernel import write_extremes as write_extremes
