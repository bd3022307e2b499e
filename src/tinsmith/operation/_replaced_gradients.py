"""Conversion of `ti.ad.grad_replaced` and `ti.ad.grad_for` to the option `backward=`.

Both engines decorate Python functions with these and run them on a tape. A function is converted if it is a kernel or
only calls one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._errors import ArgumentError, KernelError, refusal
from ..engines import find_replaced, is_kernel, of_kernel
from ..frontend import Source, find_forwarded_call, read
from ._options import OpOptions


def follow_replaced(candidate: Any, options: OpOptions) -> tuple[Any, OpOptions]:
    """Replace a function decorated by `grad_replaced` by its kernel, and add its gradient to the options.

    Other candidates are returned unchanged.

    Raises:
        ArgumentError: it has no gradient yet, or the options name another one.
        KernelError: the function or its gradient does something other than calling a kernel.
    """
    replaced = find_replaced(candidate)
    if replaced is None:
        return candidate, options
    kernel = _kernel_in(replaced.function, replaced.owner)
    name = of_kernel(kernel).function_of(kernel).__name__
    if replaced.gradient is None:
        words = f"the gradient of kernel `{name}` is replaced, but no replacement is defined yet"
        raise ArgumentError(refusal(words, remedy="Make the op after the function that `grad_for` decorates."))
    if options.backward is not None:
        words = f"kernel `{name}` has two gradients: from `backward=`, and from `grad_for`"
        raise ArgumentError(refusal(words, remedy="Leave one of them out."))
    otherwise = "Make the op of the kernel itself, without `grad_replaced`: its gradient is generated then."
    gradient = _kernel_in(replaced.gradient, replaced.owner)
    return kernel, replace(options, backward=gradient, replaces_gradient=True, otherwise=otherwise)


def _kernel_in(function: Callable[..., Any], owner: Any) -> Any:
    """Return the kernel that a function is, or that it calls with its own arguments as its only statement.

    Args:
        function: the function.
        owner: the object if it is a method, to which the kernel is bound; None for other functions.
    """
    if is_kernel(function):
        engine = of_kernel(function)
        if not engine.is_method(function):
            return function
        if owner is None:
            raise _unbound(engine.function_of(function).__name__)
        return engine.bind(function, owner)
    source = read(function)
    call = find_forwarded_call(source.with_owner(owner))
    if isinstance(call, str):
        raise _does_more(source, call)
    wanted = source.parameters if owner is None else source.parameters[1:]
    if owner is None and source.parameters[:1] == ("self",):
        raise _unbound(source.name)
    kernel = call.function
    if not is_kernel(kernel) or call.arguments != wanted:
        raise _does_more(source, call.place)
    engine = of_kernel(kernel)
    own = tuple(read(engine.function_of(kernel)).parameters)[engine.is_method(kernel) :]
    if own != wanted:
        words = f"the parameters of function `{source.name}` and of its kernel have different names"
        rows = [("function", ", ".join(wanted)), ("kernel", ", ".join(own)), ("at", call.place)]
        raise KernelError(refusal(words, rows, "Give them the same names: gradients are matched by name."))
    return kernel


def _unbound(name: str) -> ArgumentError:
    words = f"`{name}`, whose gradient `grad_replaced` replaces, is a method, but its object is not known"
    return ArgumentError(refusal(words, remedy=f"Make the op from the bound method: ts.op(spec)(owner.{name})."))


def _does_more(source: Source, place: str) -> KernelError:
    words = f"function `{source.name}`, decorated with `grad_replaced` or `grad_for`, does more than call one kernel"
    remedy = "Pass its kernel to ts.op, and the kernel of its gradient as `backward=`; ts.chain takes several."
    return KernelError(refusal(words, [("at", place)], remedy))
