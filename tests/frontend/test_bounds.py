"""Bounds of trip counts: never fewer iterations than a loop has, of whole numbers and of fractions."""

import itertools
import math

import pytest

from support.written import compile_text
from tinsmith.engines import of_kernel
from tinsmith.frontend import read
from tinsmith.frontend._bounds import Bounds

INNER = {
    "a remainder": "range(i % s)",
    "a remainder of a fraction": "range(int((i * f) % s * 4))",
    "a remainder by a fraction": "range(int((i % f) * 10))",
    "a remainder of a quotient": "range(int((i / 2) % s * 4))",
    "a remainder of what was rounded": "range(int(i * f) % s)",
    "a fraction made whole": "range(int(f) * 10, 10)",
    "a fraction cast to a whole number": "range(lang.cast(f, lang.i32) * 10, 10)",
    "a fraction cast to Python's type": "range(lang.cast(f, int) * 10, 10)",
    "a whole number cast to a fraction": "range(int(lang.cast(i, lang.f32) / 2 % s * 4))",
    "a fraction as a bound": "range(int(f * i), int(f) + 4)",
    "a minimum of both kinds": "range(int(min(i, f) % s * 4))",
    "a narrow type": "range(lang.cast(i * 100, lang.i8) + 200)",
}


def trips_of(lang, text, size, s, f):
    kernel = compile_text(
        lang,
        "def kernel(x: lang.types.ndarray(), s: lang.i32, f: lang.f32):\n    for i in range(x.shape[0]):\n"
        f"        for j in {text}:\n            x[i] += 1.0\n",
    )
    source = read(of_kernel(kernel).function_of(kernel))
    bounds = Bounds(source, {"x": (size,)}, {"s": s, "f": f})
    return bounds.trips(source.tree.body[0].body[0])


class Language:
    """What the text of a loop's range calls, in Python."""

    i32, i8, f32 = "i32", "i8", "f32"

    @staticmethod
    def cast(value, kind):
        whole = math.trunc(value)
        return {int: whole, "i32": whole, "i8": (whole + 128) % 256 - 128, "f32": float(value)}[kind]


@pytest.mark.parametrize("name", INNER)
def test_bounds_are_never_below_the_trip_count(lang, name):
    bounded = 0
    for size, s, f in itertools.product((1, 5), (2, 3), (0.25, 0.75, 2.5)):
        trips = trips_of(lang, INNER[name], size, s, f)
        counts = [len(eval(INNER[name], {"i": i, "s": s, "f": f, "lang": Language})) for i in range(size)]
        assert trips is None or trips >= max(counts), (size, s, f)
        bounded += trips is not None
    assert bounded > 5


def test_a_whole_remainder_is_below_the_divisor(lang):
    assert trips_of(lang, "range(i % 4)", 100, 1, 0.5) == 3
    assert trips_of(lang, "range(lang.cast(i, lang.i32) % s)", 100, 7, 0.5) == 6
