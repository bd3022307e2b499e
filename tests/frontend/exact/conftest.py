"""A compiled kernel for a table of expressions."""

import itertools

import pytest
import torch


@pytest.fixture
def tabled(tmp_path):
    """Return values of expressions in `a` and `b`, an engine's language: (point, expression)."""
    numbers = itertools.count()

    def values(lang, texts, a, b):
        path = tmp_path / f"table_{next(numbers)}.py"  # engines read kernels from files
        path.write_text(_text(texts))
        names = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        out = torch.zeros(len(a), len(texts), dtype=a.dtype)
        names["build"](lang)(a.contiguous(), b.contiguous(), out)
        return out

    return values


def _text(texts):
    lines = ["def build(ti):", "    @ti.kernel"]
    lines += ["    def table(x: ti.types.ndarray(), z: ti.types.ndarray(), out: ti.types.ndarray()):"]
    lines += ["        for i in range(x.shape[0]):", "            a = x[i]", "            b = z[i]"]
    lines += [f"            out[i, {row}] = {text}" for row, text in enumerate(texts)]
    return "\n".join([*lines, "    return table", ""])
