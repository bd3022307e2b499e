"""Row: what goes wrong in a pitfall, what engines give, what tinsmith does about it, and which tests show it."""

from typing import Any, NamedTuple

RIGHT, REFUSED, NAMED = "right", "refused", "named"


class Row(NamedTuple):
    """One pitfall.

    Attributes:
        name: its number and a slug.
        wrong: what goes wrong.
        taichi: what Taichi 1.7.4 gives: "right", "wrong", "refuses" or "dies", and what else there is to say.
        quadrants: the same of Quadrants 1.3.3, without its option for a gradient stack.
        does: what tinsmith does: the gradient is "right", it is "refused", or the kernel is "named" by a check.
        shown: the tests, from the folder `tests`; a name without a folder stands in `pitfalls`.
        spec: makes an op of the kernel, which is run by the sanitizer and both gradient checks.
        inputs: of that op; integers are int32.
    """

    name: str
    wrong: str
    taichi: str
    quadrants: str
    does: str
    shown: tuple[str, ...]
    spec: str = ""
    inputs: tuple[Any, ...] = ()
