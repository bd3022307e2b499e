"""What a statement changes, and how."""

import ast

import pytest

from tinsmith.frontend import changes_of
from tinsmith.frontend._effects import possibly_changed

STATEMENTS = {  # each change: the location, how, what is worked out for it, whether it is plain
    "x[i] = v": [("x[i]", ("write",), "v", True)],
    "x[i]: float = v": [("x[i]", ("write",), "v", True)],
    "x[i], (n, p.y) = v": [
        ("x[i]", ("write",), "v", True),
        ("n", ("write",), "v", True),
        ("p.y", ("write",), "v", True),
    ],
    "x[i] = y[i] = v": [("x[i]", ("write",), "v", True), ("y[i]", ("write",), "v", True)],
    "x[i] = x[i] + v": [("x[i]", ("add",), "v", True)],
    "x[i] = v + x[i]": [("x[i]", ("add",), "v", True)],
    "x[i] = x[i] - v": [("x[i]", ("add",), "v", True)],
    "x[i] = u + x[i] - v": [("x[i]", ("add",), "u - v", True)],
    "x[i] = x[i] + u + v": [("x[i]", ("add",), "u + v", True)],
    "x[i] = v - x[i]": [("x[i]", ("write",), "v - x[i]", True)],
    "x[i] = x[i] + x[i]": [("x[i]", ("write",), "x[i] + x[i]", True)],
    "x[i] = u - (x[i] + v)": [("x[i]", ("write",), "u - (x[i] + v)", True)],
    "x[i] = u + (x[i] + v)": [("x[i]", ("write",), "u + (x[i] + v)", True)],
    "x[i] = x[i] + f(x[i])": [("x[i]", ("write",), "x[i] + f(x[i])", True)],
    "x[i] = x[j] + v": [("x[i]", ("write",), "x[j] + v", True)],
    "x[i] += v": [("x[i]", ("add",), "v", False)],
    "x[i] -= v": [("x[i]", ("add",), "v", False)],
    "x[i] *= v": [("x[i]", ("read", "write"), "v", False)],
    "atomic_add(x[i], v)": [("x[i]", ("add",), "v", False)],
    "atomic_max(x[i], v)": [("x[i]", ("read", "write"), "v", False)],
    "f(x[i], v)": [],
    "for i in x: y[i] = v": [],
    "if c: y[i] = v": [],
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_effects_of_statements(text):
    (node,) = ast.parse(text).body
    changes = changes_of(node.value if isinstance(node, ast.Expr) else node)
    assert [(ast.unparse(o.target), o.kinds, ast.unparse(o.value), o.is_plain) for o in changes] == STATEMENTS[text]


@pytest.mark.parametrize(
    ("text", "changed"),
    {
        "f(reshaped)": {"reshaped"},
        "f(state.shapes)": {"state"},
        "f(reshaped.shape[0])": set(),
        "f(state.shape)": set(),
        "f(state.shape[0] + 1)": set(),
        "f(*state)": {"state"},
        "cast(state)": set(),
        "state[0] = 1": {"state"},
    }.items(),
)
def test_effects_of_calls(text, changed):
    """An array whose name has `shape` in it is passed like any other."""
    tree = ast.parse(f"def kernel(reshaped, state):\n    {text}").body[0]
    assert possibly_changed(tree, ["reshaped", "state"]) == changed
