"""Determinism: launches that give the same bits in each run, for `deterministic=True`.

Threads that add to one element do so in an order that changes from run to run, and floats are rounded in between. So a
kernel with such atomics runs on one thread; other kernels run as usual. The choice depends only on the sizes of a call,
and not on the times of earlier calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._errors import KernelError, refusal
from ..analyses import find_ordered_atomic
from ..engines import name_place
from ..frontend import multiplies_atomically
from ..ir import NotCovered, nodes
from ..passes import ON_ONE_THREAD, run_pipeline
from ._stage import Stage
from ._variant import Variant


def fix_order(kernel: nodes.Kernel, stage: Stage, op: str) -> nodes.Kernel:
    """Convert a generated kernel of a deterministic op to a serial one if its result depends on the order of
    iterations.

    Raises:
        KernelError: the order cannot be fixed, on a GPU.
    """
    atomic = find_ordered_atomic(kernel)
    if atomic is None:
        return kernel
    _refuse_gpu(stage, op, name_place(kernel.path, atomic.line))
    return run_pipeline(ON_ONE_THREAD, kernel)


def is_order_fixed_serially(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> bool:
    """Return True if a deterministic op must run a kernel on one thread, since the result depends on the order of
    iterations.

    Raises:
        KernelError: the order cannot be fixed: on a GPU, or if the kernel multiplies atomically.
    """
    try:
        kernel, _ = stage.lower_variant(variant.single, values)
    except NotCovered as reason:
        # Nothing is known of its atomics.
        place = reason.place
    else:
        atomic = find_ordered_atomic(kernel)
        if atomic is None:
            return False
        place = name_place(kernel.path, atomic.line)
    _refuse_gpu(stage, op, place)
    if multiplies_atomically(stage.source, stage.home):
        words = (
            f"op `{op}` has `deterministic=True`, but its kernel uses `atomic_mul`, whose "
            "result depends on the order of threads"
        )
        raise KernelError(refusal(words, [("at", place)], "Write `a[i] *= v` in a loop that runs in order."))
    return True


def _refuse_gpu(stage: Stage, op: str, place: str) -> None:
    if stage.engine.device_type() == "cpu":
        return
    words = f"op `{op}` has `deterministic=True`, but its result would depend on the order of a GPU's threads"
    remedy = "Run it on the CPU, or leave out `deterministic=True`."
    raise KernelError(refusal(words, [("kernel", stage.name), ("at", place)], remedy))
