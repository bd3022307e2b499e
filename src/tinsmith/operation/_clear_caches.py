"""Empties the library's caches."""

from __future__ import annotations

from .._cache import empty_caches, measure_caches
from ..engines import COMPILING


def clear_caches() -> dict[str, int]:
    """Clear all caches of tinsmith. Return the number of entries that each had, by what its entries are.

    The next call of an op makes its program again; results and gradients are the same. It is safe at any time, also
    while other threads call ops, and between a forward pass and its backward pass. An engine keeps the kernels that it
    has compiled until it is started again, so most are not compiled again.

    Caches are bounded: a program needs this only to free their memory. `tinsmith doctor --all` lists them. The cache on
    disk is kept; set `TINSMITH_CACHE=0` for a process that should not use it.

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
    # A thread that compiles relies on finding in a cache what it has just put there.
    with COMPILING:
        had = {size.name: size.entries for size in measure_caches() if size.entries}
        empty_caches()
    return had
