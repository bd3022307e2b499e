"""Kernels that read and write each element once, in the forms whose speed on a GPU is to be compared.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from collections.abc import Callable
from typing import Any

import torch

import tinsmith as ts

Way = Callable[[torch.Tensor], Any]
BLOCKS = (64, 128, 256, 512, 1024)
"""Threads of a block."""


def saxpy(lang: Any) -> Any:
    """Return the op z = a x + y."""

    @lang.kernel
    def saxpy(a: float, x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in z:
            z[i] = a * x[i] + y[i]

    return ts.op("x[n], y[n] -> z[n]", init={"z": "empty"})(saxpy)


def triple_in_blocks(lang: Any, threads: int) -> Way:
    """Return the op y = 3 x in blocks of so many threads."""

    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(block_dim=threads)
        for i in range(x.shape[0]):
            y[i] = 3.0 * x[i]

    return ts.op("x[n] -> y[n]", init={"y": "empty"}, name=f"triple_in_blocks_of_{threads}")(triple)


def vector_kernel(lang: Any) -> Any:
    """Return the kernel y = 3 x on arrays of vectors of four numbers."""
    vec4 = lang.types.vector(4, lang.f32)

    @lang.kernel
    def triple(x: lang.types.ndarray(dtype=vec4), y: lang.types.ndarray(dtype=vec4)):
        for i in range(x.shape[0]):
            y[i] = 3.0 * x[i]

    return triple


def triple_of_vectors(lang: Any) -> Way:
    """Return y = 3 x, by a kernel on arrays of vectors of four numbers. The size must be a multiple of four."""
    op = ts.op("x[n, 4] -> y[n, 4]", init={"y": "empty"}, name="triple_of_vectors")(vector_kernel(lang))
    return lambda x: op(x.view(-1, 4))
