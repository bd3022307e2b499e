"""Digests of texts, by which processes recognise the same content.

By blake2b, which is Python's own code. SHA-256 is OpenSSL's, which waits forever in a forked process if another thread
was in it at the fork: Taichi 1.7.4 asks for its newest version over TLS, in a thread, when it is imported.
"""

from __future__ import annotations

import hashlib

DIGITS = 12
"""Hexadecimal digits of a digest: two kernels have the same ones by accident once in 10^14."""


def digest_of(*parts: str) -> str:
    """A digest of texts, in order."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=DIGITS // 2).hexdigest()
