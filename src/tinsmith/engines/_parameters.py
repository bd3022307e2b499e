"""A kernel's parameters and results, from an engine's own list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .._errors import KernelError, refusal
from ._contract import Parameter


def parameters(
    kernel_name: str, metas: list[Any], describe_one: Callable[[str, Any], Parameter | None], struct_type: type
) -> tuple[Parameter, ...]:
    """All parameters of a kernel, from the engine's own list of them; members in place of structs."""
    names = {meta.name for meta in metas}
    all_parameters: list[Parameter] = []
    for meta in metas:
        for path, annotation in _members((meta.name,), meta.annotation, struct_type):
            name = "_".join(path)
            parameter = describe_one(name, annotation)
            is_member = len(path) > 1
            if parameter is None or (is_member and parameter.kind not in ("scalar", "matrix")):
                words = f"parameter `{'.'.join(path)}` of kernel `{kernel_name}` has a type that an op cannot pass"
                remedy = "Use ndarrays, numbers, vectors, matrices, structs of these three, or templates."
                raise KernelError(refusal(words, [("annotation", repr(annotation))], remedy))
            if is_member and name in names:
                words = (
                    f"member `{'.'.join(path)}` of kernel `{kernel_name}` has the name of another argument, `{name}`"
                )
                raise KernelError(refusal(words, remedy="Give one of the two another name."))
            names.add(name)
            all_parameters.append(replace(parameter, path=path) if is_member else parameter)
    return tuple(all_parameters)


def _members(path: tuple[str, ...], annotation: Any, struct_type: type) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A parameter itself, or all that a struct consists of, with the names on the way."""
    if not isinstance(annotation, struct_type):
        yield path, annotation
        return
    for name, member in annotation.members.items():
        yield from _members((*path, name), member, struct_type)


def structs(metas: list[Any], struct_type: type) -> dict[tuple[str, ...], Any]:
    """The types of parameters that are structs, and of structs in them, by the names that lead there."""
    by_path: dict[tuple[str, ...], Any] = {}
    left = [((meta.name,), meta.annotation) for meta in metas]
    for path, annotation in left:
        if isinstance(annotation, struct_type):
            by_path[path] = annotation
            left += [((*path, name), member) for name, member in annotation.members.items()]
    return by_path


def results(
    annotations: Sequence[Any] | None, describe_one: Callable[[str, Any], Parameter | None]
) -> tuple[Parameter, ...]:
    """What a kernel returns, from its return annotations; a `template` is of a kind that no array can hold."""
    pairs = [(annotation, describe_one("", annotation)) for annotation in annotations or () if annotation is not None]
    return tuple(
        Parameter("", "template", (), text=repr(one)) if parameter is None else parameter for one, parameter in pairs
    )
