"""The kernel that the probes compile. There is no `__future__` import here because both engines refuse it."""

from types import FunctionType, ModuleType


def doubling(_lang: ModuleType) -> FunctionType:
    """Return a plain function that computes `y = 2 x`, fully annotated and not yet decorated as a kernel."""
    array = _lang.types.ndarray(dtype=_lang.f32, ndim=1, needs_grad=True)

    def double(x: array, y: array):  # noqa: ANN202  # pyright: ignore[reportInvalidTypeForm]  # an engine's
        for i in x:
            y[i] = 2.0 * x[i]

    return double
