"""What the PTX of a kernel consists of: counts of the instructions that decide how fast it runs on a GPU.

Both engines write the PTX of each kernel that they compile to the working directory, if they are started with
`print_kernel_asm=True`. Counts are of the text: an instruction in a loop counts once.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ENTRY, WIDE, DOUBLE = "kernels", "64-bit integer", "f64"
LOADS, VECTOR_LOADS, STORES, VECTOR_STORES, ATOMICS = (
    "loads",
    "loads of vectors",
    "stores",
    "stores of vectors",
    "atomics",
)
LOCAL = "local memory"
NAMES = (ENTRY, LOADS, VECTOR_LOADS, STORES, VECTOR_STORES, ATOMICS, WIDE, DOUBLE, LOCAL)
"""What is counted, in the order of a row."""

_INSTRUCTION = re.compile(r"^\s*(?:\{\s*)?(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+)\s", re.M)
_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "mad", "div", "rem", "shl", "shr", "min", "max", "neg", "abs", "cvt", "setp"}
)
_OTHER_SPACES = frozenset({"param", "shared", "const", "local"})


def count_instructions(ptx: str) -> Counter[str]:
    """Return how many instructions of each kind a text in PTX has.

    Loads and stores are those of memory that tensors may lie in: global, or generic, which may be any.
    """
    counts = Counter[str](dict.fromkeys(NAMES, 0))
    counts[ENTRY] = len(re.findall(r"^\s*(?:\.visible\s+)?\.entry\b", ptx, re.M))
    for name in _INSTRUCTION.findall(ptx):
        kind, *parts = name.split(".")
        if kind in ("ld", "ldu", "st") and "local" in parts:
            counts[LOCAL] += 1
        elif kind in ("ld", "ldu", "st") and _OTHER_SPACES.isdisjoint(parts):
            is_vector = bool({"v2", "v4", "v8"} & {*parts})
            whole = (VECTOR_STORES if is_vector else STORES) if kind == "st" else VECTOR_LOADS if is_vector else LOADS
            counts[whole] += 1
        elif kind in ("atom", "red"):
            counts[ATOMICS] += "shared" not in parts
        elif kind in _ARITHMETIC and _is_wide(kind, parts):
            counts[WIDE] += 1
        counts[DOUBLE] += "f64" in parts
    return counts


def _is_wide(kind: str, parts: list[str]) -> bool:
    """Return True if an instruction computes an integer of 64 bits."""
    if "wide" in parts:
        return bool({"s32", "u32"} & {*parts})
    types = [part for part in parts if re.fullmatch(r"[bsuf]\d+", part)]
    # The first type of a conversion is that of its result.
    return bool({"s64", "u64", "b64"} & {*(types[:1] if kind == "cvt" else types)})


def describe_counts(counts: Counter[str]) -> str:
    """Format counts for a cell of a table."""
    return ", ".join(f"{name} {counts[name]}" for name in NAMES)


class PtxFolder:
    """A folder into which an engine writes the PTX of its kernels."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[Path] = set()

    def read_new(self) -> list[str]:
        """Return the texts that were written since the last call."""
        files = sorted(one for one in self._folder.glob("*.ptx") if one not in self._seen)
        self._seen |= {*files}
        return [one.read_text(encoding="utf-8", errors="replace") for one in files]
