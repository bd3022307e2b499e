"""A kernel with other names for arrays."""

from tinsmith.ir import parse_ir, print_ir
from tinsmith.passes import rename_arrays

TEXT = """\
kernel move
  array x: f32[1]
  array y: f32[1]
  array near: f32[2] of_blocks
  block_memory near: x.shape[0] + 3, y.shape[0]
  y[0] = x[0]
"""


def test_formulas_of_block_memory_have_the_new_names():
    renamed = print_ir(rename_arrays(parse_ir(TEXT), {"x": "t", "y": "x"}))
    assert "block_memory near: t.shape[0] + 3, x.shape[0]\n" in renamed
