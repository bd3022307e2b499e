from ._adjoint_source import adjoint_source as adjoint_source
from ._explain import Detail as Detail
from ._explain import explain as explain
from ._explanation import Explanation as Explanation
from ._printed_passes import explain_passes as explain_passes
