"""A hand-written gradient kernel as a source of gradients."""

from __future__ import annotations

from collections.abc import Mapping

from ..._errors import GradientError, SpecError, refusal
from ...compiling import Stage
from ...frontend import Roles, find_store_line
from .._signature import Signature
from ._kernel_reverse import Argument, KernelReverse, Request, Rerun


class HandWritten(KernelReverse):
    """A gradient kernel that the user wrote: its parameter `grad_<name>` is the gradient of an array.

    `otherwise` is the remedy that messages name for derivatives that the kernel does not compute.
    """

    name = "backward"

    def __init__(self, signature: Signature, stage: Stage, otherwise: str = "") -> None:
        self.signature = signature
        self.otherwise = (
            otherwise or "Leave out `backward=`: then they are generated from the kernel, and so is the gradient."
        )
        self.stage = stage
        self.targets = {name: f"grad_{name}" for name in signature.items if f"grad_{name}" in stage.parameters}
        self._check_parameters()

    def _check_parameters(self) -> None:
        twofold = [name for name in self.signature.items if f"grad_{name}" in self.signature.items]
        if twofold:
            name = twofold[0]
            words = (
                f"`grad_{name}` of op `{self.signature.op}` is both the name of an array and "
                f"the name of the gradient of `{name}`"
            )
            remedy = f"Rename the array: the backward kernel takes the gradient of `{name}` under this name."
            raise SpecError(refusal(words, remedy=remedy))
        known = {*self.signature.order, *self.signature.items, *(f"grad_{name}" for name in self.signature.items)}
        unfilled = [name for name in self.signature.init if name not in {*self.signature.items, *self.stage.parameters}]
        if unfilled:
            words = f"`init` of op `{self.signature.op}` names `{unfilled[0]}`, which its backward kernel does not fill"
            rows = [("its parameters", ", ".join(self.stage.parameters))]
            remedy = f"Leave `{unfilled[0]}` out of `init`, or make it a parameter of the backward kernel."
            raise SpecError(refusal(words, rows, remedy))
        unknown = [name for name in self.stage.parameters if name not in known]
        if unknown:
            words = f"the backward kernel of op `{self.signature.op}` has an unknown parameter `{unknown[0]}`"
            remedy = "Use the op's own names, `grad_<output>` for a cotangent and `grad_<input>` for a gradient."
            raise SpecError(refusal(words, [("expected", ", ".join(sorted(known)))], remedy))
        self._refuse_unfilled()
        if not any(name in self.targets for name in self.signature.arrays):
            words = f"the backward kernel of op `{self.signature.op}` computes the gradient of no input"
            raise SpecError(refusal(words, remedy="Add a parameter `grad_<input>` for each input that has a gradient."))

    def _refuse_unfilled(self) -> None:
        """Refuse a kernel that reads or adds to uninitialized memory to which it never stores."""
        gradients = frozenset(one for name, one in self.targets.items() if self.starts_empty(name))
        for name in sorted((self._own | gradients) & self.stage.roles.keys()):
            role = self.stage.roles[name]
            uses = role.of("read", "add")
            if uses and not role.of("write") and not role.escapes:
                how = "adds to" if role.of("add") else "reads"
                words = f"the backward kernel of op `{self.signature.op}` {how} `{name}`, and never stores to it"
                rows = [("at", uses[0].place), ("init", f"{name!r}: {self.signature.init[name]!r}")]
                remedy = f"Leave `{name}` out of `init`: then it starts at zero."
                if name in self._own:
                    remedy = f"Say 'empty' for `{name}` in `init`: the results of the forward kernel are kept then."
                raise SpecError(refusal(words, rows, remedy))

    def find_reads(self, active: frozenset[str]) -> frozenset[str]:
        roles = {name: self.stage.roles[name] for name in self.signature.items if name in self.stage.roles}
        read = frozenset(name for name, role in roles.items() if role.is_read or role.of("add"))
        return read - self._own

    @property
    def _own(self) -> frozenset[str]:
        """Scratch that each launch has for itself: its `init` is "workspace"."""
        return frozenset(name for name, how in self.signature.init.items() if how == "workspace")

    def find_gradient_arrays(self, active: frozenset[str]) -> frozenset[str]:
        return frozenset(self.targets) - frozenset(self.signature.outputs)

    def list_requests(self, active: frozenset[str], floats: frozenset[str]) -> tuple[Request, ...]:
        arguments = []
        for parameter in self.stage.arrays:
            name = parameter.removeprefix("grad_")
            is_gradient = self.targets.get(name) == parameter
            arguments.append(Argument(parameter, ("gradient", name) if is_gradient else ("value", parameter)))
        return (Request(self.stage, False, tuple(arguments)),)

    def place(self, name: str) -> tuple[str, int]:
        """Return the file and line of the store to an array's gradient, or of the kernel if it is not known."""
        source = self.stage.source
        return source.path, find_store_line(source, self.stage.roles.get(f"grad_{name}", Roles()))

    def writes_adjoint(self, output: str) -> bool:
        roles: Mapping[str, object] = self.stage.roles
        return f"grad_{output}" in roles and self.stage.roles[f"grad_{output}"].is_written

    def starts_empty(self, name: str) -> bool:
        return not self.signature.starts_at_zero(f"grad_{name}")

    def choose_initial_values(self, name: str) -> Rerun:
        if name not in self.stage.roles or not self.stage.roles[name].is_written:
            return ""
        return "empty" if name in self._own else "final"

    def sums_over_batch(self, name: str) -> bool:
        """Return False: a store to `grad_x` would keep only the last sample's gradient, so each has a buffer."""
        return False

    def check(self, active: frozenset[str]) -> None:
        missing = sorted(active - self.targets.keys())
        if missing:
            words = (
                f"`{missing[0]}` of op `{self.signature.op}` requires a gradient that "
                "its backward kernel does not compute"
            )
            raise GradientError(
                refusal(words, remedy=f"Add the parameter `grad_{missing[0]}`, or pass `{missing[0]}.detach()`.")
            )
