"""Pickling of ops. Engine kernels cannot be pickled, so they are stored by module and name."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import dataclass
from typing import Any

from .._errors import refusal
from ..engines import is_kernel, name_place, of_kernel
from ._options import OpOptions


@dataclass(frozen=True)
class Reference:
    """A reference to a kernel: a module, a name in it, and the object that the kernel is bound to, if any."""

    module: str
    name: str
    owner: Any = None

    def kernel(self) -> Any:
        """Import the module and return the kernel that has this name now.

        Raises:
            pickle.UnpicklingError: there is none, as in a process that has not run the cells of a notebook.
        """
        free = self.find()
        if free is None:
            words = f"the pickled op needs the kernel `{self.name}`, which this process does not have"
            remedy = "Put the kernel into a file that is imported."
            if self.module in ("__main__", "__mp_main__"):
                remedy = f"A new process does not run the cells of a notebook, or what a prompt was given. {remedy}"
            raise pickle.UnpicklingError(refusal(words, [("module", self.module)], remedy))
        return free if self.owner is None else of_kernel(free).bind(free, self.owner)

    def find(self) -> Any:
        """Import the module and return the unbound kernel that has this name now; None if there is none."""
        value: Any = importlib.import_module(self.module)
        try:
            for part in self.name.split("."):
                value = vars(value)[part] if isinstance(value, type) else getattr(value, part)
        except (AttributeError, KeyError):
            return None
        # The name may be that of the op.
        free = getattr(value, "kernel", value)
        return free if is_kernel(free) else None


def reference_to(kernel: Any) -> Reference:
    """Create a reference to a kernel.

    Raises:
        pickle.PicklingError: the kernel was made inside a function, or its name stands for something else by now, as
            after a cell of a notebook ran that defines a kernel of the same name.
    """
    engine = of_kernel(kernel)
    function = engine.function_of(kernel)
    if "<locals>" in function.__qualname__:
        words = f"the op's kernel `{function.__qualname__}` was made inside a function, so it cannot be pickled"
        raise pickle.PicklingError(refusal(words, remedy="Define the kernel at the top level of a module."))
    reference = Reference(function.__module__, function.__qualname__, engine.owner_of(kernel))
    named = reference.find()
    if named is None or of_kernel(named).function_of(named) is not function:
        words = f"the op's kernel `{function.__qualname__}` cannot be pickled, since its name stands for something else"
        rows = [
            ("in", reference.module),
            ("kernel", name_place(function.__code__.co_filename, function.__code__.co_firstlineno)),
        ]
        remedy = "A kernel is pickled by its name. Make the op again from the kernel that has the name now."
        raise pickle.PicklingError(refusal(words, rows, remedy))
    return reference


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
