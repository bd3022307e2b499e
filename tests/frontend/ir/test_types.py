"""The types that operations have, asked of the engines themselves."""

import itertools

import pytest
import torch

from tinsmith.ir import types

KINDS = (*types.FLOATS, *types.SIGNED, *types.UNSIGNED)
BINARY = {
    "+": lambda lang, a, b: a + b,
    "*": lambda lang, a, b: a * b,
    "/": lambda lang, a, b: a / b,
    "//": lambda lang, a, b: a // b,
    "%": lambda lang, a, b: a % b,
    "pow": lambda lang, a, b: a**b,
    "<<": lambda lang, a, b: a << b,
    ">>": lambda lang, a, b: a >> b,
    ">>>": lambda lang, a, b: lang.bit_shr(a, b),
    "&": lambda lang, a, b: a & b,
    "<": lambda lang, a, b: a < b,
    "max": lambda lang, a, b: lang.max(a, b),
    "atan2": lambda lang, a, b: lang.atan2(a, b),
    "raw_div": lambda lang, a, b: lang.raw_div(a, b),
}
UNARY = ("sin", "sqrt", "exp", "log", "rsqrt", "abs", "floor", "round", "tanh")


def _asked(lang, ask):
    """Ask an engine for the types of operations; return them and the operations that it refuses."""
    given, refused = {}, set()

    def note(key, operation):
        try:
            given[key] = operation().ptr.get_rvalue_type().to_string()
        except Exception:  # noqa: BLE001  # each engine has its own kinds of refusal
            refused.add(key)
        return 0

    def all_of(x):
        numbers = {kind: lang.cast(x, getattr(lang, kind)) for kind in KINDS}
        ask(note, numbers)
        return 0

    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=lang.f32, ndim=1)):
        for _ in range(1):
            lang.static(all_of(x[0]))

    kernel(torch.zeros(1))
    return given, refused


@pytest.mark.filterwarnings("ignore:.*Calling non-")
def test_binary_operations(lang):
    def ask(note, numbers):
        for (one, a), (other, b) in itertools.product(numbers.items(), numbers.items()):
            for name, operation in BINARY.items():
                note((name, one, other), lambda f=operation, a=a, b=b: f(lang, a, b))

    given, refused = _asked(lang, ask)
    defaults = types.Defaults("f32", "i32")
    assert {key: types.of_operation(*key, defaults) for key in given} == given
    assert len(given) > 900
    assert all(types.accepts(*key) for key in given)
    assert not [key for key in refused if types.accepts(*key)]


@pytest.mark.filterwarnings("ignore:.*Calling non-")
def test_unary_operations(lang):
    def ask(note, numbers):
        for kind, a in numbers.items():
            for name in UNARY:
                note((name, kind), lambda name=name, a=a: getattr(lang, name)(a))
            note(("~", kind), lambda a=a: ~a)
            note(("neg", kind), lambda a=a: -a)

    given, refused = _asked(lang, ask)
    defaults = types.Defaults("f32", "i32")
    assert {key: types.of_unary(*key, defaults) for key in given} == given
    assert all(types.accepts(*key) for key in given)
    assert not [key for key in refused if types.accepts(*key)]


@pytest.mark.parametrize(("value", "kind", "fits"), [(255, "u8", True), (-1, "u8", False), (2**31, "i32", False)])
def test_integers_of_a_type(value, kind, fits):
    assert types.fits(value, kind) is fits
