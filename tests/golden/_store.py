"""The digests of what is generated, in a file beside this one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("digests.json")

Digests = dict[str, dict[str, dict[str, str]]]
"""By engine, kernel and way of using it."""


def digest_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return a short digest of each text. Where the checkout lies does not matter."""
    return {way: _digest(text.replace(str(ROOT), "")) for way, text in texts.items()}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest() if text else ""


def load_digests() -> Digests:
    """Read the stored digests."""
    digests: Digests = json.loads(FILE.read_text(encoding="utf-8"))
    return digests


def write_digests(digests: Digests) -> None:
    """Store digests, one kernel a line, so that a change of one is a change of a line."""
    parts = []
    for engine, kernels in sorted(digests.items()):
        lines = [f"  {json.dumps(name)}: {json.dumps(ways)}" for name, ways in sorted(kernels.items())]
        parts.append(f" {json.dumps(engine)}: {{\n" + ",\n".join(lines) + "\n }")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
