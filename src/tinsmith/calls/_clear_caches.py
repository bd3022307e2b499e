"""Empties the caches of the library."""

from __future__ import annotations

from .._cache import empty_caches, measure_caches
from ..engines import COMPILING


def clear_caches() -> dict[str, int]:
    """Empty all caches of tinsmith, and return how many entries they had, by what the entries are.

    The next call of an op makes its program again; results and gradients are the same. It is safe at any time, also
    while other threads call ops, and between a forward pass and its backward pass. An engine keeps the kernels that it
    has compiled until it is started again, so most are not compiled again.

    Caches are bounded: a program needs this only to free their memory. `tinsmith doctor` lists them. What is kept on
    disk stays: `TINSMITH_CACHE=0` is the setting for a process that does without.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = 2.0 * x[i]
        >>> double(torch.ones(3))
        tensor([2., 2., 2.])
        >>> "programs" in ts.clear_caches()
        True
        >>> double(torch.ones(3))
        tensor([2., 2., 2.])
    """
    # Whoever compiles finds again what it has just put in.
    with COMPILING:
        had = {size.name: size.entries for size in measure_caches() if size.entries}
        empty_caches()
    return had
