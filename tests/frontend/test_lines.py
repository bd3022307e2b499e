"""A function is read once, however often it is asked for, as long as its calls mean the same."""

import inspect

from tinsmith.frontend import read


def first(v):
    return v


def second(v):
    return v


called = first


def read_often(x, y):
    for i in x:
        y[i] = 2 * called(x[i])


def test_a_function_is_read_once(monkeypatch):
    functions = []

    def getsourcelines(function):
        functions.append(function)
        return right(function)

    right = inspect.getsourcelines
    monkeypatch.setattr(inspect, "getsourcelines", getsourcelines)
    one, other = read(read_often), read(read_often)
    assert functions == [read_often]
    assert one is other
    assert one.tree.lineno == read_often.__code__.co_firstlineno
    # What it calls is another function now.
    monkeypatch.setitem(globals(), "called", second)
    other = read(read_often)
    assert one.tree is not other.tree
    assert functions == [read_often]


def test_a_wrapped_function_is_not_confused_with_its_wrapper():
    import functools

    @functools.wraps(read_often)
    def wrapper(x, y):
        return None

    assert read(read_often).function is read_often
    vars(wrapper).update(vars(read_often))
    assert read(wrapper).function is wrapper
