"""The kernels that are timed, written once for both engines (and once for Warp).

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

import linecache
from typing import Any


def triple(lang: Any) -> Any:
    """Build the kernel y = 3 x."""

    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i]

    return triple


def triple_of_templates(lang: Any) -> Any:
    """Build the kernel y = 3 x for fields that are passed in."""

    @lang.kernel
    def triple_of_templates(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = 3.0 * x[i]

    return triple_of_templates


def triple_of_fields(lang: Any, x: Any, y: Any) -> Any:
    """Build the kernel y = 3 x for fields that the kernel refers to."""

    @lang.kernel
    def triple_of_fields():
        for i in x:
            y[i] = 3.0 * x[i]

    return triple_of_fields


def square_of_templates(lang: Any) -> Any:
    """Build the kernel y = x x for fields that are passed in. Its gradient reveals which x the kernel was given."""

    @lang.kernel
    def square_of_templates(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = x[i] * x[i]

    return square_of_templates


def square_of_fields(lang: Any, x: Any, y: Any) -> Any:
    """Build the kernel y = x x for fields that the kernel refers to."""

    @lang.kernel
    def square_of_fields():
        for i in x:
            y[i] = x[i] * x[i]

    return square_of_fields


def layer_object(lang: Any, size: int) -> Any:
    """Build a data-oriented object with a weight and two kernels: y = (w x)^2."""

    @lang.data_oriented
    class Layer:
        def __init__(self) -> None:
            self.x, self.w, self.s, self.y = (lang.field(lang.f32, shape=size, needs_grad=True) for _ in range(4))
            self.w.fill(1.5)

        @lang.kernel
        def weigh(self):
            for i in self.x:
                self.s[i] = self.w[i] * self.x[i]

        @lang.kernel
        def square(self):
            for i in self.s:
                self.y[i] = self.s[i] * self.s[i]

    return Layer()


def total(lang: Any, count: int) -> Any:
    """Build the kernel y = a0 + a1 + ... of `count` arrays."""
    names = [f"a{place}" for place in range(count)]
    parameters = ", ".join(f"{name}: lang.types.ndarray()" for name in [*names, "y"])
    text = f"""\
@lang.kernel
def total({parameters}):
    for i in y:
        y[i] = {" + ".join(f"{name}[i]" for name in names)}
"""
    file = f"<the sum of {count} arrays, on {lang.__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # where engines look for a kernel's source
    space: dict[str, Any] = {"lang": lang}
    exec(compile(text, file, "exec"), space)
    return space["total"]


def warp_triple(wp: Any) -> Any:
    """Build the kernel y = 3 x for Warp."""

    @wp.kernel
    def warp_triple(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = 3.0 * x[i]

    return warp_triple
