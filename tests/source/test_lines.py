"""A function's lines are found once, however often its source is read."""

import inspect

from tinsmith.source import read


def read_often(x, y):
    for i in x:
        y[i] = 2 * x[i]


def test_lines_are_found_once_and_trees_are_made_anew(monkeypatch):
    functions = []

    def getsourcelines(function):
        functions.append(function)
        return right(function)

    right = inspect.getsourcelines
    monkeypatch.setattr(inspect, "getsourcelines", getsourcelines)
    first, second = read(read_often), read(read_often)
    assert functions == [read_often]
    assert first.tree is not second.tree
    assert first.tree.lineno == second.tree.lineno == read_often.__code__.co_firstlineno
