"""What the commands run. Each app is a folder with its own `__init__`; the names exported here need no torch."""

from .._extras import require_packages as _require_packages
from ._files import require_dataset, require_folder, require_image
from ._simulations import SIMULATIONS, require_simulation

# Every app is imported through this face, so here alone: the files below import these packages without asking.
_require_packages("an app", "apps")

__all__ = ["SIMULATIONS", "require_dataset", "require_folder", "require_image", "require_simulation"]
