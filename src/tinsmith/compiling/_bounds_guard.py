"""Bounds guard: launches that raise where an index leaves its array, for `check_bounds=True`.

A kernel is compiled from its IR, functions inlined, with a test of each index (`passes.insert_bounds_checks`) that
notes the first one outside in a small field. The field is read after each launch, so the launch is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._errors import BoundsError, refusal
from ..engines import Compiled, Engine, Launch, survive_forks
from ..ir import nodes
from ..passes import ENTRIES, GUARDED, RECORD, Site, run_pipeline
from ._from_ir import compile_ir, lower_for
from ._stage import Stage, batch_options
from ._variant import Variant

_RECORDS: dict[str, tuple[Any, Any]] = {}
_MAKING = survive_forks(threading.RLock())


def record_of(engine: Engine) -> Any:
    """The field in which an engine's guarded kernels record indices outside; a new one after each restart."""
    with _MAKING:
        runtime, field = _RECORDS.get(engine.name, (None, None))
        if field is None or runtime is not engine.runtime():
            lang = engine.lang
            field = lang.field(lang.i32)
            builder = lang.FieldsBuilder()
            builder.dense(lang.i, ENTRIES).place(field)
            builder.finalize()
            field.fill(0)
            _RECORDS[engine.name] = engine.runtime(), field
    return field


@dataclass(frozen=True)
class GuardedLaunch:
    """A launch that checks the record of indices afterwards.

    Attributes:
        launch: of the guarded kernel.
        record: the field with recorded indices.
        sites: the places in the source that the record numbers.
        op, kernel, path: for messages.
    """

    launch: Launch
    record: Any
    sites: Sequence[Site]
    op: str
    kernel: str
    path: str

    def __call__(self, *arguments: Any) -> None:
        self.launch(*arguments)
        count, site, index, size = (int(one) for one in np.asarray(self.record.to_numpy()))
        if count:
            self.record.fill(0)
            where = self.sites[site]
            raise BoundsError(self._words(count, where, index, size), self.path, where.line)

    def _words(self, count: int, site: Site, index: int, size: int) -> str:
        if site.is_division:
            rows = [("division", f"of {size} by {index}"), ("at", f"{self.path}:{site.line}"), ("kernel", self.kernel)]
            words = "divides an integer by zero" if index == 0 else "divides the least integer by -1"
            remedy = "Guard the division, `if d != 0`, or divide floats: without the check it ends the process."
            return refusal(f"op `{self.op}` {words}", rows, remedy)
        rows = [
            ("index", f"{index} along axis {site.axis}"),
            ("size", str(size)),
            ("at", f"{self.path}:{site.line}"),
            ("kernel", self.kernel),
        ]
        if count > 1:
            rows.append(("outside in all", f"{count:,} indices"))
        remedy = "Guard the index, or loop over fewer elements; negative indices do not count from the end."
        return refusal(f"op `{self.op}` uses an element of `{site.array}` that is not there", rows, remedy)


def compile_guarded(stage: Stage, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
    """A kernel of the user's, compiled from its IR with its indices tested.

    Raises:
        KernelError: it uses what the IR does not know, or the engine does not compile it.
    """
    remedy = "leave out `check_bounds`"
    one = replace(variant.single, is_serial=False) if variant.batched_arrays else variant
    plain, fields = lower_for(stage, one, values, f"op `{op}` cannot check its bounds", remedy)
    # Tested before it becomes a kernel for a batch: messages count axes as the source does.
    sites: list[Site] = []
    kernel = run_pipeline(GUARDED, plain, replace(batch_options(variant), note_sites=sites.extend))
    handed = {**fields, RECORD: record_of(stage.engine)}
    words = f"the kernel of op `{op}` does not compile with its bounds checked"
    compiled = compile_ir(stage, variant, kernel, handed, words, "Leave out `check_bounds`.")
    return guard_launches(compiled, sites, stage.engine, op, kernel)


def guard_launches(
    compiled: Compiled, sites: Sequence[Site], engine: Engine, op: str, kernel: nodes.Kernel
) -> Compiled:
    """A compiled kernel whose launches raise BoundsError."""
    launch = GuardedLaunch(compiled.launch, record_of(engine), tuple(sites), op, kernel.name, kernel.path)
    return replace(compiled, launch=launch)
