"""`ts.op` and `ts.chain` take the same options, which are those of `OpOptions` with its defaults."""

import dataclasses
import inspect

import tinsmith as ts
from tinsmith.operation import OpOptions


def find_options(function):
    parameters = inspect.signature(function).parameters.values()
    return {one.name: (one.default, one.annotation) for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_op_and_chain_take_the_same_options():
    assert find_options(ts.op) == find_options(ts.chain)


def test_the_defaults_are_those_of_the_options():
    options = find_options(ts.op)
    fields = {one.name: one.default for one in dataclasses.fields(OpOptions)[: len(options)]}
    assert fields == {name: default for name, (default, _) in options.items()}
