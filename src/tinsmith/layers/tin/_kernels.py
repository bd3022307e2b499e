"""Kernels: those of a layer in their order, each with its name and its arguments."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import ArgumentError, RegistrationError, nearest, refusal
from ...calls.fields import Launcher
from ...engines import is_kernel, of_kernel
from ..fields import Launch


class Kernels:
    """The kernels that a layer runs. Arguments may come later than the kernel."""

    def __init__(self, *, allows_races: bool = False) -> None:
        self._allows_races = allows_races
        self._launchers: dict[str, Launcher] = {}
        self._kernels: dict[str, Any] = {}
        self._by_function: dict[Any, list[Launcher]] = {}
        self._arguments: dict[str, tuple[Any, ...]] = {}
        self._launches: tuple[Launch, ...] | None = None

    def __len__(self) -> int:
        return len(self._launchers)

    def __copy__(self) -> Kernels:
        twin = Kernels(allows_races=self._allows_races)
        vars(twin).update({name: copy.copy(value) for name, value in vars(self).items()})
        return twin

    def __str__(self) -> str:
        return ", ".join(f"{name}({_format_arguments(self._arguments[name])})" for name in self._launchers)

    @property
    def kernels(self) -> list[Any]:
        """The kernels, each once."""
        stages = {launcher.stage.source.function: launcher.stage for launcher in self._launchers.values()}
        return [stage.kernel for stage in stages.values()]

    @property
    def are_complete(self) -> bool:
        """Whether every kernel has got its arguments."""
        counts = [(one.argument_count, self._arguments[name]) for name, one in self._launchers.items()]
        return all(wanted == len(given) for wanted, given in counts)

    def launches(self) -> tuple[Launch, ...]:
        """Return the kernels with their arguments. Raises ArgumentError if some are missing."""
        # Arrays in structs may be others in each call.
        if self._launches is None or any([one.held for one in self._launchers.values()]):  # noqa: C419  # faster
            pairs = [(launcher, self._arguments[name]) for name, launcher in self._launchers.items()]
            self._launches = tuple(
                [Launch(launcher, launcher.bind_arguments(arguments)) for launcher, arguments in pairs]
            )
        return self._launches

    def add(self, kernel: Any, arguments: tuple[Any, ...], name: str | None, layer: str) -> None:
        """Put a kernel last. `layer` is for messages. Raises ArgumentError, RegistrationError."""
        if not is_kernel(kernel):
            actual = f"{type(kernel).__name__} {getattr(kernel, '__name__', kernel)!r:.60}"
            words = f"{layer}.register_kernel takes a kernel"
            raise ArgumentError(
                refusal(words, [("got", actual)], "Decorate the function with @ti.kernel (or @qd.kernel).")
            )
        name = of_kernel(kernel).function_of(kernel).__name__ if name is None else name
        if name in self._launchers:
            words = f"{layer} has a kernel `{name}` already"
            raise RegistrationError(refusal(words, remedy="Give the second one another name: `kernel_name=`."))
        like = self._like(kernel)
        launcher = self._make_launcher(kernel, arguments, f"{layer}.{name}", like)
        if arguments or not launcher.argument_count:  # without any, `change` brings them
            launcher.check_races(launcher.bind_arguments(arguments))
        self._launchers[name], self._arguments[name] = launcher, arguments
        self._kernels[name] = kernel
        if like is None and not launcher.signature.templates:
            self._by_function.setdefault(launcher.stage.source.function, []).append(launcher)

    def _make_launcher(
        self, kernel: Any, arguments: tuple[Any, ...], label: str, like: Launcher | None = None
    ) -> Launcher:
        engine = of_kernel(kernel)
        pairs = [*zip(engine.parameters(kernel, ()), arguments, strict=False)]
        objects = [one.name for one, value in pairs if one.kind == "array" and engine.is_ndarray(value)]
        templates = {one.name: value for one, value in pairs if one.kind == "template"}
        return Launcher(kernel, label, like, objects, allows_races=self._allows_races, templates=templates)

    def _like(self, kernel: Any) -> Launcher | None:
        """Return the launcher of the same kernel if it was registered before, else None."""
        engine = of_kernel(kernel)
        function, owner = engine.function_of(kernel), engine.owner_of(kernel)
        return next((one for one in self._by_function.get(function, ()) if one.stage.owner is owner), None)

    def change(self, kernel: Any, arguments: tuple[Any, ...], layer: str) -> bool:
        """Give a kernel other arguments. Whether it may work on other fields then.

        `kernel` is the kernel or its name; or the first argument, where there is one kernel.
        """
        name = kernel if isinstance(kernel, str) else self._name_of(kernel)
        if name is None:
            name, arguments = self._only(kernel, layer), (kernel, *arguments)
        if name not in self._launchers:
            raise build_unknown_error(f"{layer} has no kernel `{name}`", name, list(self._launchers))
        launcher = self._launchers[name]
        if any(map(dataclasses.is_dataclass, (*arguments, *self._arguments[name]))):
            # Another struct may hold other arrays.
            label = launcher.signature.op
            launcher = self._launchers[name] = self._make_launcher(self._kernels[name], arguments, label)
        launcher.bind_arguments(arguments)
        self._arguments[name] = arguments
        self._launches = None
        return bool(launcher.signature.templates)

    def _name_of(self, kernel: Any) -> str | None:
        """Return the name that a kernel was registered under, else its own; None if `kernel` is not a kernel."""
        if not is_kernel(kernel):
            return None
        function = of_kernel(kernel).function_of(kernel)
        names = [name for name, one in self._launchers.items() if one.stage.source.function is function]
        return names[0] if len(names) == 1 else function.__name__

    def _only(self, first: Any, layer: str) -> str:
        if len(self._launchers) == 1:
            return next(iter(self._launchers))
        words = f"{layer} has {len(self._launchers)} kernels, and it is not clear which one these arguments are for"
        rows = [("first argument", f"{first!r:.60}"), ("kernels", ", ".join(self._launchers))]
        raise RegistrationError(refusal(words, rows, "Call `set_kernel_args(kernel_or_name, *args)`."))


def build_unknown_error(words: str, name: str, known: Sequence[str]) -> RegistrationError:
    """Build the error for a name that was not registered, with the nearest registered name."""
    close = nearest(name, known)
    remedy = f"Did you mean `{close}`?" if close else "Register it first."
    return RegistrationError(refusal(words, [("registered", ", ".join(known) or "none")], remedy))


def _format_arguments(arguments: tuple[Any, ...]) -> str:
    return ", ".join(f"tensor{tuple(a.shape)}" if isinstance(a, torch.Tensor) else f"{a!r:.30}" for a in arguments)
