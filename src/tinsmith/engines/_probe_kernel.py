"""The kernel that the probes compile. No `__future__` import here: both engines refuse it."""

from types import FunctionType, ModuleType


def doubling(_lang: ModuleType) -> FunctionType:
    """`y = 2 x` as a plain function with full annotations, not yet a kernel."""
    array = _lang.types.ndarray(dtype=_lang.f32, ndim=1, needs_grad=True)

    def double(x: array, y: array):  # noqa: ANN202  # pyright: ignore[reportInvalidTypeForm]  # an engine's
        for i in x:
            y[i] = 2.0 * x[i]

    return double
