"""The kernel that packs the occupied cells of a grid into the bits that `march` reads."""

from types import ModuleType
from typing import Any

from ._regions import BLOCK


def occupied_bits(lang: ModuleType) -> Any:
    """Build the kernel that packs occupied cells into bits. Its parameters; no gradient:

    density    [l, x, y, z]  float32 or float64
    threshold  [1]           a cell is occupied if its density is above it
    bits       [l, x / 4, y / 4, z / 4], rounded up; int64: bit 16 x + 4 y + z of a block, 0 outside the grid
    """
    array = lang.types.ndarray()

    @lang.kernel
    def occupied_bits(density: array, threshold: array, bits: array):
        for level, x, y, z in lang.ndrange(bits.shape[0], bits.shape[1], bits.shape[2], bits.shape[3]):
            word = lang.cast(0, lang.i64)
            for bit in range(BLOCK * BLOCK * BLOCK):
                i, j, k = BLOCK * x + (bit >> 4), BLOCK * y + ((bit >> 2) & 3), BLOCK * z + (bit & 3)
                if i < density.shape[1] and j < density.shape[2] and k < density.shape[3]:
                    if density[level, i, j, k] > threshold[0]:
                        word |= lang.cast(1, lang.i64) << lang.cast(bit, lang.i64)
            bits[level, x, y, z] = word

    return occupied_bits
