"""The faster parts of the engines' front ends (`engines/_front_ends.py`) do what the engines' own do."""

import ast
import linecache
import textwrap

import pytest
import torch

import tinsmith as ts
from tinsmith.engines import _front_ends

LINES = (
    "    x = y[i] + 1.0\n",
    "x = 1\n",
    "\n",
    "    \n",
    "\tx = 1\n",
    "x = 'a\u00a0b'  # a space that is none\n",
    "x = 1   \n",
    "x = 'wörter'\n",
    "x = 1\f\n",
)


@pytest.mark.parametrize("line", LINES, ids=repr)
def test_a_line_of_source_is_filled_as_by_textwrap(line: str) -> None:
    assert _front_ends.WRAPPING.fill(line, tabsize=4, width=9999) == textwrap.fill(line, tabsize=4, width=9999)


def test_a_long_line_is_not_broken() -> None:
    line = f"def f({', '.join(f'argument_{place}' for place in range(1500))}):\n"
    assert len(line) > 9999
    assert _front_ends.WRAPPING.fill(line, tabsize=4, width=9999) == line.rstrip()


def test_a_kernel_of_150_arrays_compiles(lang) -> None:
    """The first line of its source has more than 9,999 characters, at which engines break lines."""
    op = make_sum(lang, 150)
    x = [torch.full((3,), float(place), requires_grad=True) for place in range(150)]
    y = op(*x)
    assert y.tolist() == [149.0 * 75.0] * 3
    (y * torch.arange(3.0)).sum().backward()
    assert all(one.grad is not None and one.grad.tolist() == [0.0, 1.0, 2.0] for one in x)


def make_sum(lang, count: int) -> ts.Op:
    """Build an op that adds arrays."""
    names = [f"x{place}" for place in range(count)]
    text = f"def add_up({', '.join(f'{name}: array' for name in [*names, 'y'])}):\n"
    text += f"    for i in range(y.shape[0]):\n        y[i] = {' + '.join(f'{name}[i]' for name in names)}\n"
    file = f"<the sum of {count} arrays, on {lang.__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {"array": lang.types.ndarray(dtype=lang.f32, ndim=1)}
    exec(compile(text, file, "exec"), space)
    spec = f"{', '.join(f'{name}[n]' for name in names)} -> y[n]"
    return ts.op(spec)(lang.kernel(space["add_up"]))


def test_positions_are_those_that_the_engine_describes(lang, monkeypatch) -> None:
    """Each node of a kernel has the engine's own description, by which errors and warnings name the user's line."""
    pairs = []

    def describe_both(describe):
        faster = _DESCRIBE(describe)

        def describe_once(context, node):
            if all(len(line.rstrip()) <= 80 for line in context.src[node.lineno - 1 : node.end_lineno]):
                pairs.append((faster(context, node), describe(context, node)))
            return faster(context, node)

        return describe_once

    monkeypatch.setattr(_front_ends, "describe_position", describe_both)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def positions(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            total = x[i] * 2.0 + 1.5
            if total > 3.0:  # a comment
                total = lang.sin(total)
            y[i] = total - 4.25

    x = torch.ones(3, requires_grad=True)
    positions(x).sum().backward()
    assert len(pairs) > 20
    assert all(ours == theirs for ours, theirs in pairs)


def test_a_printed_kernel_passes_once_through_the_front_end(lang, monkeypatch) -> None:
    """Quadrants goes twice through a kernel that may have dataclasses; one that was printed has none."""
    passes = []
    describe = _front_ends.describe_position

    def count(own):
        faster = describe(own)

        def describe_counted(context, node):
            if isinstance(node, ast.FunctionDef):
                passes.append(context.func.func.__code__.co_filename)
            return faster(context, node)

        return describe_counted

    monkeypatch.setattr(_front_ends, "describe_position", count)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def once(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i] * x[i] + 7.75

    x = torch.ones(3, requires_grad=True)
    once(x).sum().backward()
    assert sum("once_adjoint" in one for one in passes) == 1


def test_attributes_come_back() -> None:
    class Owner:
        kept = 1

    def fail():
        with _front_ends.replace_attributes((Owner, "kept", 2), (Owner, "new", 3)):
            seen.append((Owner.kept, Owner.new))  # pyright: ignore[reportAttributeAccessIssue]
            raise KeyError

    seen = []
    with pytest.raises(KeyError):
        fail()
    assert seen == [(2, 3)]
    assert Owner.kept == 1
    assert not hasattr(Owner, "new")


_DESCRIBE = _front_ends.describe_position
