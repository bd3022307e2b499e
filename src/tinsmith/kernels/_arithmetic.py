"""Elementary functions from arithmetic only, for loops that are vectorized.

Both engines call the C library for `exp` and the like, one number at a time (Taichi 1.7.4, Quadrants 1.3.3), and a
loop with such a call is never vectorized. In a loop that is not vectorized anyway, the functions here are slower than
the library's.
"""

from types import ModuleType
from typing import Any


def _build_casts(lang: ModuleType) -> tuple[Any, Any, Any]:
    """Build what `exp` needs of integers n, as functions of numbers: the bits of a float32, the float32 of an integer,
    and a float32 times 2^n.

    The second one is also given the float32 of n + 1.5 * 2^23.
    """
    f32, i32 = lang.f32, lang.i32

    @lang.func
    def bits_of(x):
        return lang.bit_cast(x, i32)

    @lang.func
    def float_of(n, shifted):  # noqa: ARG001  # of the same form as that of vectors
        return lang.cast(n, f32)

    @lang.func
    def scale(y, n):
        # Most of 2^n is added to the exponent's bits: two factors might be multiplied with each other, and overflow.
        most = lang.min(lang.max(n, -100), 127)
        scaled = lang.bit_cast(lang.bit_cast(y, i32) + (most << 23), f32)
        return scaled * lang.bit_cast((n - most + 127) << 23, f32)

    return bits_of, float_of, scale


def _build_vector_casts(lang: ModuleType, width: int) -> tuple[Any, Any, Any]:
    """Build what `_build_casts` builds, as functions of vectors, with the same results.

    Engines cast vectors only number by number, in a static loop (Taichi 1.7.4, Quadrants 1.3.3). LLVM turns that into
    one machine instruction, but it takes long to compile, so there are two such casts instead of five.
    """
    f32, i32 = lang.f32, lang.i32

    @lang.func
    def bits_of(x):
        return lang.Vector([lang.bit_cast(x[k], i32) for k in lang.static(range(width))], dt=i32)

    @lang.func
    def float_of(n, shifted):  # noqa: ARG001  # of the same form as that of numbers
        # Fast arithmetic cancels no sum across a `max`, which changes nothing here.
        return lang.max(shifted, f32(0.0)) - f32(12582912.0)

    @lang.func
    def scale(y, n):
        bits = ((n >> 1) + 127) << 23
        root = lang.Vector([lang.bit_cast(bits[k], f32) for k in lang.static(range(width))], dt=f32)
        odd = lang.select((n & 1) == 0, f32(1.0), f32(2.0))
        # `max` keeps fast arithmetic from multiplying the two roots with each other, which would overflow.
        return lang.max(y * odd * root, f32(0.0)) * root

    return bits_of, float_of, scale


def _build_exp(lang: ModuleType, width: int = 0) -> Any:
    """Build the function `exp(x)` for float32. At infinities and NaN it equals the library's.

    With a width it is a function of vectors.

    It is within 2 units in the last place (1.3 was the most that was found, with the engines' fast arithmetic).

    With n = round(x / log 2) and r = x - n log 2:   exp(x) = 2^n exp(r)

    The exponential of r, which is at most log(2) / 2, is a polynomial; log 2 is in two parts, of which the first times
    n is exact; 2^n is done in two steps, since neither 2^128 nor 2^-149 has a float32 of its own.
    """
    f32 = lang.f32
    bits_of, float_of, scale = _build_vector_casts(lang, width) if width else _build_casts(lang)

    @lang.func
    def exp(x):
        # Comparisons preserve NaN; `min` and `max` do not.
        low = lang.select(x < f32(-104.0), f32(-104.0), x)
        c = lang.select(low > f32(89.0), f32(89.0), low)
        # Added to 1.5 * 2^23, a number is rounded to an integer. It is not simply subtracted again, since the
        # engines' fast arithmetic would cancel both operations.
        shifted = c * f32(1.44269504) + f32(12582912.0)
        n = bits_of(shifted) - 1262485504
        whole = float_of(n, shifted)
        first = c - whole * f32(0.693359375)
        # `first` is never below -1: fast arithmetic cannot reorder across a `select`, which would lose digits of the
        # second part.
        r = lang.select(first < f32(-1.0), f32(-1.0), first) + whole * f32(2.12194440e-4)
        p = r * f32(1.9875691500e-4) + f32(1.3981999507e-3)
        p = p * r + f32(8.3334519073e-3)
        p = p * r + f32(4.1665795894e-2)
        p = p * r + f32(1.6666665459e-1)
        p = p * r + f32(5.0000001201e-1)
        y = p * (r * r) + r + f32(1.0)
        return lang.select(c >= f32(-104.0), scale(y, n), c)  # else NaN

    return exp


def _build_log(lang: ModuleType) -> Any:
    """Build the function `log(x)` for float32. At 0, below it, at infinity and NaN it equals the library's.

    It is within 2 units in the last place.

    With x = 2^e m, and m from sqrt(1/2) to sqrt(2):   log(x) = e log 2 + log(m)

    The logarithm of m is a polynomial of m - 1. A float32 of log 2 is good to 3e-9 of it: no second part is needed.
    """
    f32, i32 = lang.f32, lang.i32

    @lang.func
    def log(x):
        bits = lang.bit_cast(x, i32)
        e = (bits - 0x3F3504F3) >> 23
        f = lang.bit_cast(bits - (e << 23), f32) - f32(1.0)
        p = f32(7.0376836292e-2)
        p = p * f - f32(1.1514610310e-1)
        p = p * f + f32(1.1676998740e-1)
        p = p * f - f32(1.2420140846e-1)
        p = p * f + f32(1.4249322787e-1)
        p = p * f - f32(1.6668057665e-1)
        p = p * f + f32(2.0000714765e-1)
        p = p * f - f32(2.4999993993e-1)
        p = p * f + f32(3.3333331174e-1)
        z = f * f
        whole = lang.cast(e, f32)
        part = f + (f * z * p - f32(0.5) * z)
        # `part` is never below -1: fast arithmetic cannot reorder across a `select`, so the largest term is added last.
        result = lang.select(part < f32(-1.0), f32(-1.0), part) + whole * f32(0.69314718)
        # Both engines treat numbers below 2^-126 as 0, also in the library's logarithm.
        least = f32(1.17549435e-38)
        outside = lang.select(lang.abs(x) < least, f32(-lang.math.inf), f32(lang.math.nan))
        return lang.select(x >= least, lang.select(x > f32(3.4028234e38), x, result), outside)

    return log


def _build_tanh(lang: ModuleType) -> Any:
    """Build the function `tanh(x)` for float32, within 2 units in the last place.

    Up to 0.625 it is a polynomial, beyond:   tanh(x) = 1 - 2 / (exp(2 x) + 1)
    """
    f32 = lang.f32
    exp = _build_exp(lang)

    @lang.func
    def tanh(x):
        size = lang.abs(x)
        z = x * x
        p = f32(-5.70498872745e-3)
        p = p * z + f32(2.06390887954e-2)
        p = p * z - f32(5.37397155531e-2)
        p = p * z + f32(1.33314422036e-1)
        p = p * z - f32(3.33332819422e-1)
        small = x + x * (z * p)
        large = f32(1.0) - f32(2.0) / (exp(size + size) + f32(1.0))
        return lang.select(size < f32(0.625), small, lang.select(x < f32(0.0), -large, large))

    return tanh


def _build_sin(lang: ModuleType) -> Any:
    """Build the function `sin(x)` for float32, within 2 units in the last place for |x| < 2^20."""
    of_quarter = _build_sin_of_quarter(lang)

    @lang.func
    def sin(x):
        return of_quarter(x, 0)

    return sin


def _build_cos(lang: ModuleType) -> Any:
    """Build the function `cos(x)` for float32, within 2 units in the last place for |x| < 2^20."""
    of_quarter = _build_sin_of_quarter(lang)

    @lang.func
    def cos(x):
        return of_quarter(x, 1)

    return cos


def _build_sin_of_quarter(lang: ModuleType) -> Any:
    """Build the function `sin(x + quarters * pi / 2)`, for x of type float32 and an integer number of quarter turns.

    With n = round(x / (pi / 2)) and r = x - n pi / 2, it is sin(r), cos(r) or one of them negated, by n. In float64,
    and with pi / 2 in two parts of which the first times n is exact, r has all digits of a float32 even where x is
    closest to a multiple of pi / 2.
    """
    f32, f64, i32 = lang.f32, lang.f64, lang.i32

    @lang.func
    def of_quarter(x, quarters: lang.template()):
        wide = lang.cast(x, f64)
        whole = lang.floor(wide * f64(0.6366197723675814) + f64(0.5))
        first = wide - whole * f64(1.5707963267341256)
        # `first` is never below -1: fast arithmetic cannot reorder across a `select`, which would lose digits of the
        # second part.
        r = lang.cast(lang.select(first < f64(-1.0), f64(-1.0), first) - whole * f64(6.077100506506192e-11), f32)
        n = lang.cast(whole, i32) + quarters
        z = r * r
        s = f32(-1.9515295891e-4)
        s = s * z + f32(8.3321608736e-3)
        s = s * z - f32(1.6666654611e-1)
        sine = r + r * (z * s)
        c = f32(2.443315711809948e-5)
        c = c * z - f32(1.388731625493765e-3)
        c = c * z + f32(4.166664568298827e-2)
        cosine = f32(1.0) - (f32(0.5) * z - z * z * c)
        value = lang.select((n & 1) == 0, sine, cosine)
        return lang.select((n & 2) == 0, value, -value)

    return of_quarter


def _build_pow(lang: ModuleType) -> Any:
    """Build the function `pow(x, y)` for float32. At 0, 1, infinity and NaN, and below 0, it equals the library's.

    It is within 2 units in the last place (0.51 was the most that was found). With x = 2^e m, and m from sqrt(1/2) to
    sqrt(2):   pow(x, y) = 2^(y log2(x))   and   log2(x) = e + 2 artanh((m - 1) / (m + 1)) / log 2

    In float64: what is raised may be 100 times as wrong as the logarithm, of which a float32 has no digits to spare.
    """
    f32, f64, i32 = lang.f32, lang.f64, lang.i32

    @lang.func
    def power(x, y):
        size = lang.abs(x)
        bits = lang.bit_cast(size, i32)
        e = (bits - 0x3F3504F3) >> 23
        m = lang.cast(lang.bit_cast(bits - (e << 23), f32), f64)
        f = (m - f64(1.0)) / (m + f64(1.0))
        z = f * f
        p = f64(0.22195308321368667)  # 2 / (13 log 2), and so on for odd numbers down to 3
        p = p * z + f64(0.26230818925253880)
        p = p * z + f64(0.32059889797532520)
        p = p * z + f64(0.41219858311113238)
        p = p * z + f64(0.57707801635558535)
        p = p * z + f64(0.96179669392597561)
        logarithm = lang.cast(e, f64) + (f * f64(2.8853900817779268) + f * (z * p))
        t = lang.cast(y, f64) * logarithm
        # Comparisons preserve NaN; `min` and `max` do not.
        low = lang.select(t < f64(-151.0), f64(-151.0), t)
        c = lang.select(low > f64(129.0), f64(129.0), low)
        # Added to 1.5 * 2^52, a number is rounded to an integer. Without AVX, `floor` is a call of the library.
        n = lang.cast(lang.bit_cast(c + f64(6755399441055744.0), lang.i64), i32)
        r = c - lang.cast(n, f64)
        q = f64(1.3215486790144307e-6)  # log(2)^8 / 8!, and so on
        q = q * r + f64(1.5252733804059841e-5)
        q = q * r + f64(1.5403530393381608e-4)
        q = q * r + f64(1.3333558146428443e-3)
        q = q * r + f64(9.6181291076284772e-3)
        q = q * r + f64(5.5504108664821580e-2)
        q = q * r + f64(0.24022650695910072)
        q = q * r + f64(0.69314718055994531)
        raised = lang.cast(q * r + f64(1.0), f32)
        most = lang.min(lang.max(n, -100), 127)  # in two steps, as `exp` does it
        scaled = lang.bit_cast(lang.bit_cast(raised, i32) + (most << 23), f32)
        result = scaled * lang.bit_cast((n - most + 127) << 23, f32)
        # Bases without a logarithm, and infinite exponents.
        no_less, no_number, endless = f32(lang.math.inf), f32(lang.math.nan), f32(3.4028234e38)
        none = lang.select(y > f32(0.0), f32(0.0), no_less)
        all_of = lang.select(y > f32(0.0), no_less, f32(0.0))
        far = lang.select(size > f32(1.0), all_of, lang.select(size < f32(1.0), none, f32(1.0)))
        result = lang.select(lang.abs(y) > endless, far, result)
        result = lang.select(size > endless, all_of, result)
        result = lang.select(size < f32(1.17549435e-38), none, result)  # which is 0 to both engines
        near = lang.select(lang.abs(y) < f32(16777216.0), y, f32(0.0))  # others are whole, and even
        count = lang.cast(near, i32)
        is_whole = lang.select(lang.cast(count, f32) == near, 1, 0)
        below_zero = lang.select((count & is_whole & 1) == 1, -result, result)
        is_below = lang.select(lang.bit_cast(x, i32) < 0, 1, 0)  # -0.0 too
        result = lang.select(is_below == 1, below_zero, result)
        is_ordinary = lang.select(size < f32(1.17549435e-38), 0, lang.select(size > endless, 0, 1))
        result = lang.select((is_below & is_ordinary & (1 - is_whole)) == 1, no_number, result)
        # Compare bits: fast arithmetic assumes that `x == x` is true.
        is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
        result = lang.select(is_nan, no_number, result)
        is_nan = (lang.bit_cast(y, i32) & 0x7FFFFFFF) > 0x7F800000
        result = lang.select(is_nan, no_number, result)
        return lang.select(y == f32(0.0), f32(1.0), lang.select(x == f32(1.0), f32(1.0), result))

    return power


VECTOR_ARITHMETIC = {"exp": _build_exp}
"""Builders of functions of vectors, by the engines' names. They take the engine's module and the width."""
VECTOR_WIDTHS = (2, 4, 16)
"""Widths for which vector functions are built. Tests use the narrow ones."""

ARITHMETIC = {
    "cos": _build_cos,
    "exp": _build_exp,
    "log": _build_log,
    "pow": _build_pow,
    "sin": _build_sin,
    "tanh": _build_tanh,
}
"""Builders of functions of numbers, by the engines' names."""
