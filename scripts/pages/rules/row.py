"""Row: the content of a rule's page besides the rule's own text."""

from __future__ import annotations

import textwrap
from typing import NamedTuple


class Row(NamedTuple):
    """One rule's page.

    `wrong` and `right` are kernels, in which `A` stands for `ti.types.ndarray()`; of a rule that is seen in a run they
    are ops named `op`, and `inputs` is what both are called with. `words` is what to say of the right one.
    """

    rule: str
    why: str
    wrong: str
    right: str = ""
    inputs: str = ""
    words: str = ""

    def text(self, body: str) -> str:
        """Complete a kernel to a whole file, with its imports."""
        text = textwrap.dedent(body).strip()
        if "@ti.kernel" not in text and "def k(" in text:
            text = f"@ti.kernel\n{text}"
        text = text.replace(": A", ": ti.types.ndarray()").replace("F64[1]", "ti.types.ndarray(dtype=ti.f64, ndim=1)")
        heads = ["import taichi as ti"]
        heads += ["import tinsmith as ts"] * ("ts." in text)
        heads += ["import torch"] * ("torch." in text or bool(self.inputs))
        return "\n".join(heads) + f"\n\n\n{text}\n"
