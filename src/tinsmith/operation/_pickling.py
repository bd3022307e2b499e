"""Pickling of ops. Engine kernels cannot be pickled, so they are stored by module and name."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import dataclass
from typing import Any

from .._errors import refusal
from ..engines import of_kernel
from ._options import OpOptions


@dataclass(frozen=True)
class Reference:
    """A reference to a kernel: a module, a name in it, and the object that the kernel is bound to, if any."""

    module: str
    name: str
    owner: Any = None

    def kernel(self) -> Any:
        """Import the module and return the kernel that has this name now."""
        value: Any = importlib.import_module(self.module)
        for part in self.name.split("."):
            value = vars(value)[part] if isinstance(value, type) else getattr(value, part)
        free = getattr(value, "kernel", value)
        return free if self.owner is None else of_kernel(free).bind(free, self.owner)


def reference_to(kernel: Any) -> Reference:
    """Create a reference to a kernel. Raises pickle.PicklingError for one that was made inside a function."""
    engine = of_kernel(kernel)
    function = engine.function_of(kernel)
    if "<locals>" in function.__qualname__:
        words = f"the op's kernel `{function.__qualname__}` was made inside a function, so it cannot be pickled"
        raise pickle.PicklingError(refusal(words, remedy="Define the kernel at the top level of a module."))
    return Reference(function.__module__, function.__qualname__, engine.owner_of(kernel))


def write_options(op: str, options: OpOptions) -> dict[str, Any]:
    """Return an op's options, with a reference instead of its `backward`.

    Raise pickle.PicklingError if that is impossible.
    """
    if options.replaces_gradient:
        words = f"op `{op}` is made of a function whose gradient `grad_for` replaces, so it cannot be pickled"
        raise pickle.PicklingError(
            refusal(words, remedy="Make the op from the kernel, and pass the gradient kernel as `backward=`.")
        )
    backward = None if options.backward is None else reference_to(options.backward)
    return {**vars(options), "backward": backward}
