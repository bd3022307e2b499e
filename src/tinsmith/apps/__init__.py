"""What the commands run. Each app is a folder with a face of its own; handed on here is what needs no torch."""

from ._files import require_dataset, require_folder, require_image
from ._simulations import SIMULATIONS, require_simulation

__all__ = ["SIMULATIONS", "require_dataset", "require_folder", "require_image", "require_simulation"]
