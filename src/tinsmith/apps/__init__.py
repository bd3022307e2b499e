"""The programs behind the commands. Each app is a folder with its own `__init__`. This file does not import torch."""

from .._extras import require_packages as _require_packages
from ._files import require_dataset, require_folder, require_image
from ._simulations import SIMULATIONS, require_simulation

# Apps are only imported through this file, so it alone checks for their packages.
_require_packages("an app", "apps")

__all__ = ["SIMULATIONS", "require_dataset", "require_folder", "require_image", "require_simulation"]
