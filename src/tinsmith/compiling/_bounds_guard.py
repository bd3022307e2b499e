"""Bounds guard: launches that raise an error if an index leaves its array, for `check_bounds=True`.

A kernel is compiled from its IR, with functions inlined and a check before each index (`passes.insert_bounds_checks`).
The first check that fails writes the index and its place to a small array. Each launch waits for the kernel and reads
that array. Each launch has its own array, since threads may launch at the same time; it is not a field, since engines
allocate fields in the main thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .._errors import BoundsError, refusal
from ..engines import ArrayArgument, Compiled, Launch, copy_kernel_streams, name_place
from ..ir import nodes
from ..passes import ENTRIES, GUARDED, RECORD, Site, run_pipeline
from ._from_ir import compile_ir, lower_for
from ._stage import Stage
from ._variant import Variant


@dataclass(frozen=True)
class GuardedLaunch:
    """A launch that raises BoundsError afterwards if an index was out of bounds.

    Attributes:
        launch: launches the guarded kernel.
        slot: the kernel's parameter for the array that records the first index out of bounds.
        is_on_cpu: whether the kernel runs on the CPU.
        sites: the places in the source, by the numbers that the kernel records.
        op, kernel, path: names for messages.
    """

    launch: Launch
    slot: Any
    is_on_cpu: bool
    sites: Sequence[Site]
    op: str
    kernel: str
    path: str

    def __call__(self, arrays: Sequence[ArrayArgument], scalars: Sequence[Any] = ()) -> None:
        count, site, index, size = self._record(arrays, scalars)
        if count:
            where = self.sites[site]
            raise BoundsError(self._words(count, where, index, size), self.path, where.line)

    def _record(self, arrays: Sequence[ArrayArgument], scalars: Sequence[Any]) -> list[int]:
        """Launch the kernel; return the number of indices out of bounds, and the site, index and size of the first."""
        if self.is_on_cpu:
            record = np.zeros(ENTRIES, np.int32)
            self.launch([*arrays, (self.slot, record.ctypes.data, record.nbytes, record.shape, 0)], scalars)
            return record.tolist()
        on_device = torch.zeros(ENTRIES, dtype=torch.int32, device="cuda")
        # The engine may launch on another stream than torch's current one.
        torch.cuda.synchronize()
        self.launch([*arrays, (self.slot, on_device.data_ptr(), on_device.nbytes, (ENTRIES,), 0)], scalars)
        torch.cuda.synchronize()
        return on_device.tolist()

    def _words(self, count: int, site: Site, index: int, size: int) -> str:
        if site.is_division:
            rows = [
                ("division", f"of {size} by {index}"),
                ("at", name_place(self.path, site.line)),
                ("kernel", self.kernel),
            ]
            words, guard = "divides an integer by zero", "Guard the division, `if d != 0`"
            if index != 0:
                words, guard = "divides the smallest integer by -1, which overflows", "Divide in a wider type"
            remedy = f"{guard}, or divide floats. Without the check, this division ends the process."
            return refusal(f"op `{self.op}` {words}", rows, remedy)
        rows = [
            ("index", f"{index} along axis {site.axis}"),
            ("size", str(size)),
            ("at", name_place(self.path, site.line)),
            ("kernel", self.kernel),
        ]
        if count > 1:
            rows.append(("out of range in all", f"{count:,} indices"))
        remedy = "Guard the index, or loop over fewer elements; a negative index does not count from the end."
        return refusal(f"op `{self.op}` uses an index of `{site.array}` that is out of range", rows, remedy)


def compile_guarded(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    """Compile a user's kernel from its IR with a bounds check at each index.

    Raises:
        KernelError: the kernel uses what the IR does not cover, or the engine does not compile it.
    """
    remedy = "leave out `check_bounds`"
    one = replace(variant.single, is_serial=False) if variant.batched_arrays else variant
    plain, fields = lower_for(stage, one, values, f"op `{op}` cannot check the bounds of its indices", remedy)
    # Checks are inserted before the batch dimension, so that messages count axes as the source does.
    sites: list[Site] = []
    kernel = run_pipeline(GUARDED, plain, replace(stage.make_batch_options(variant), note_sites=sites.extend))
    words = f"the kernel of op `{op}` does not compile with bounds checks"
    compiled = compile_ir(stage, variant, kernel, fields, words, "Leave out `check_bounds`.")
    return guard_launches(stage, compiled, sites, op, kernel)


def guard_launches(stage: Stage, compiled: Compiled, sites: Sequence[Site], op: str, kernel: nodes.Kernel) -> Compiled:
    """Return a compiled guarded kernel whose launches raise BoundsError if an index was out of bounds."""
    is_on_cpu = stage.engine.device_type() == "cpu"
    launch = GuardedLaunch(
        compiled.launch, compiled.slots[RECORD], is_on_cpu, tuple(sites), op, kernel.name, kernel.path
    )
    copy_kernel_streams(compiled.launch, launch, "check_bounds=True reads after each launch what the kernel found")
    return replace(compiled, launch=launch)
