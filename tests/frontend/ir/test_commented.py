"""Printed kernels with comments are the same kernels, with the right lines above what comes of them."""

import ast
import linecache

import pytest
import torch

from support.roundtrip import lower_kernel
from tinsmith.codegen import add_comments, print_kernel
from tinsmith.ir import types
from tinsmith.kernels import splat


def printed_tree(kernel, *arguments):
    kernel_ir = lower_kernel(kernel, *arguments).kernel
    return print_kernel(
        kernel_ir, dict.fromkeys([*kernel_ir.arrays, *kernel_ir.arguments], "int"), types.Defaults()
    ), kernel_ir.path


def source_line(path):
    return lambda number: linecache.getline(path, number).strip()


def stepping(lang):
    @lang.kernel
    def stepping(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = x[i]
            while v < 10.0:
                v = v * v + 1.0
                if v > 5.0:
                    break
                elif v > 4.0:
                    v += 1.0
                else:
                    v -= 0.5
            y[i] = v * v + v

    return stepping


def test_comments_do_not_change_the_kernel(lang):
    vector, matrix, image = torch.rand(3), torch.rand(3, 2), torch.rand(4, 4, 3)
    for kernel, arguments in (
        (stepping(lang), (vector, vector)),
        (splat(lang, serial=True), (matrix, matrix, vector, image[0, :3], vector, image)),
    ):
        tree, path = printed_tree(kernel, *arguments)
        lines = add_comments(tree, source_line(path))
        assert '# """' not in "\n".join(lines)  # the first line of this file, which is nobody's
        assert ast.dump(ast.parse("\n".join(lines))) == ast.dump(ast.parse(ast.unparse(tree)))


def test_a_source_line_stands_above_its_statements(lang):
    tree, path = printed_tree(stepping(lang), torch.rand(3), torch.rand(3))
    lines = [line.strip() for line in add_comments(tree, source_line(path))]
    for comment, statement in (
        ("# v = x[i]", "v_1 = x[i]"),
        ("# y[i] = v * v + v", "y[i] = v_1 * v_1 + v_1"),
        ("# v += 1.0", "v_1 = v_1 + 1.0"),
        ("# for i in x:", "for i in range(x.shape[0]):"),
    ):
        assert lines[lines.index(comment) + 1] == statement.replace("v_1", _local(lines)), lines


def _local(lines):
    """Return the printed name of the kernel's `v`."""
    return next(line for line in lines if line.endswith("= x[i]") and not line.startswith("#")).split()[0]


def test_consecutive_statements_of_a_line_share_its_comment():
    tree = ast.parse("def k(x):\n    a = x[0]\n    b = a * a\n    x[0] = b\n    c = b").body[0]
    for statement, line in zip(tree.body, (7, 7, 8, 7), strict=True):
        statement.lineno = line
    comments = [line for line in add_comments(tree, {7: "seven", 8: "eight"}.get) if "#" in line]
    assert comments == ["    # seven", "    # eight", "    # seven"]


@pytest.mark.parametrize("known", [{}, {2: ""}])
def test_statements_without_a_line_have_no_comment(known):
    tree = ast.parse("def k(x):\n    a = x[0]").body[0]
    assert add_comments(tree, known.get) == ["def k(", "    x,", "):", "    a = x[0]"]
