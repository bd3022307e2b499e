"""Row: what goes wrong in a pitfall, what engines give, what tinsmith does about it, and which tests show it."""

from typing import Any, NamedTuple

RIGHT, REFUSED, REPORTED = "right", "refused", "reported"


class Row(NamedTuple):
    """One pitfall.

    Attributes:
        name: its number and a slug.
        wrong: what goes wrong; up to the first colon or semicolon it is the heading.
        taichi: what Taichi 1.7.4 gives: a word ("right", "wrong", "refuses", "dies", ...), and after `:`, `;` or `,`
            what else there is to say.
        quadrants: the same of Quadrants 1.3.3, without its option for a gradient stack.
        does: what tinsmith does: the gradient is "right", it is "refused", or the kernel is "reported" by a check.
        shown: the tests, from the folder `tests`; a name without a folder stands in `pitfalls`.
        spec: makes an op of the kernel, which is run by the sanitizer and both gradient checks.
        inputs: of that op; integers are int32.
        remedy: what to write instead, where an engine is used directly.
        code: the mistake, where it is not in the kernel: part of its page's program, which prints what comes of it.
        error: the error that the code must end with.
        unrun: why the code cannot be run on a page.
    """

    name: str
    wrong: str
    taichi: str
    quadrants: str
    does: str
    shown: tuple[str, ...]
    spec: str = ""
    inputs: tuple[Any, ...] = ()
    remedy: str = ""
    code: str = ""
    error: str = ""
    unrun: str = ""

    @property
    def number(self) -> str:
        """The number of the pitfall. Pitfalls of one kind share it."""
        return self.name.partition("_")[0]


class Theme(NamedTuple):
    """One page.

    Attributes:
        slug: the name of its file.
        title: its heading.
        about: one or two sentences for a reader who wonders whether to look here.
        rows: its pitfalls.
        head: what the program of the page begins with, after its imports.
        imports: modules of Python that it needs.
    """

    slug: str
    title: str
    about: str
    rows: tuple[Row, ...]
    head: str = ""
    imports: tuple[str, ...] = ()
