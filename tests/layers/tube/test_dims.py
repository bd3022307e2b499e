"""Dims: values that compare, hash, print and pickle as what they stand for."""

import copy
import pickle

import pytest

import tinsmith as ts

DIMS = [ts.AnyDim, ts.BatchDim, ts.MatchDim("n"), ts.MatchDim("m"), ts.MatchDim(0), 3]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda dim: pickle.loads(pickle.dumps(dim))])
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_a_copy_is_equal_and_all_others_differ(dim, copied):
    twin = copied(dim)
    assert twin == dim
    assert hash(twin) == hash(dim)
    assert [other for other in DIMS if other == twin] == [dim]


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (ts.AnyDim, "AnyDim"),
        (ts.BatchDim, "BatchDim"),
        (ts.MatchDim("n"), "MatchDim('n')"),
        (ts.MatchDim(1), "MatchDim(1)"),
    ],
)
def test_a_dim_prints_as_it_is_written(dim, text):
    assert repr(dim) == text
    assert str((dim, 2)) == f"({text}, 2)"


def test_match_dims_are_told_apart_by_their_ids():
    assert len({ts.MatchDim("n"), ts.MatchDim("n"), ts.MatchDim("m")}) == 2


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_every_dim_is_a_dim_option(dim):
    assert isinstance(dim, ts.DimOption)


@pytest.mark.parametrize("identity", [None, 1.5, ("n",)], ids=str)
def test_an_id_is_a_string_or_an_integer(identity):
    with pytest.raises(ts.ArgumentError) as refused:
        ts.MatchDim(identity)
    assert repr(identity) in str(refused.value)
    assert 'Write a name or a number: `MatchDim("n")`.' in str(refused.value)


def test_a_calculator_must_calculate():
    with pytest.raises(TypeError, match="calc_dimension"):
        ts.DimensionCalculator()
