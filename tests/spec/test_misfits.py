"""The words for sizes that do not fit, one entry a misfit."""

import pytest
import torch

from tinsmith._errors import ArgumentError, TinsmithError
from tinsmith.spec import parse, solve, unexpected_keyword

MISFITS = {
    "the style guide's own": (
        ("density[sample], thickness[sample] -> opacity[sample]", {"density": (1024,), "thickness": (1023,)}, {}),
        [
            "ShapeError: `thickness` does not fit `density` in op `f`",
            "  density    [sample] = (1024,)",
            "  thickness  [sample] = (1023,)      <- sample was 1024",
            "Pass one size wherever the spec says `sample`.",
        ],
    ),
    "too many dims": (
        ("x[n] -> y[n]", {"x": (2, 3)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [n] = (2, 3)      <- expected 1 dim, got 2",
            "Pass `x` with 1 dim; to run a batch, write `x[*b, n]` and `*b` in every output.",
        ],
    ),
    "too many dims where a batch is": (
        ("x[*b, n], k[n] -> y[*b]", {"x": (2, 3), "k": (3, 3)}, {}),
        [
            "ShapeError: `k` does not fit its spec in op `f`",
            "  k  [n] = (3, 3)      <- expected 1 dim, got 2",
            "Pass `k` with 1 dim.",
        ],
    ),
    "too few dims": (
        ("x[n, 3] -> y[n]", {"x": (3,)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [n, 3] = (3,)      <- expected 2 dims, got 1",
            "Pass `x` with 2 dims: `x[None]` adds one in front.",
        ],
    ),
    "a 0-d tensor wanted": (
        ("x[n], s[] -> y[n]", {"x": (3,), "s": (1,)}, {}),
        [
            "ShapeError: `s` does not fit its spec in op `f`",
            "  s  [] = (1,)      <- expected 0 dims, got 1",
            "Pass `s` with 0 dims: `s.squeeze()`.",
        ],
    ),
    "a 0-d tensor came": (
        ("x[n] -> y[n]", {"x": ()}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [n] = ()      <- expected 1 dim, got 0",
            "Pass `x` with 1 dim: `x[None]` adds one in front.",
        ],
    ),
    "too few dims beside a batch": (
        ("x[*b, n, 3] -> y[*b]", {"x": (3,)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [*b, n, 3] = (3,)      <- expected at least 2 dims, got 1",
            "Pass `x` with at least 2 dims: `x[None]` adds one in front.",
        ],
    ),
    "too few dims beside a rest": (
        ("x[n, ..., 3] -> y[...]", {"x": (3,)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [n, ..., 3] = (3,)      <- expected at least 2 dims, got 1",
            "Pass `x` with at least 2 dims: `x[None]` adds one in front.",
        ],
    ),
    "too few dims beside a known batch": (
        ("k[*b], x[*b, ..., 3] -> y[*b]", {"x": (4, 3), "k": (4, 5)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [*b, ..., 3] = (4, 3)      <- expected at least 3 dims, got 2",
            "Pass `x` with at least 3 dims: `x[None]` adds one in front.",
        ],
    ),
    "too few dims beside a known rest": (
        ("k[...], x[*b, ..., 3] -> y[*b]", {"x": (4, 3), "k": (4, 5)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [*b, ..., 3] = (4, 3)      <- expected at least 3 dims, got 2",
            "Pass `x` with at least 3 dims: `x[None]` adds one in front.",
        ],
    ),
    "a fixed size": (
        ("p[n, 3] -> y[n]", {"p": (10, 2)}, {}),
        [
            "ShapeError: `p` does not fit its spec in op `f`",
            "  p  [n, 3] = (10, 2)      <- expected 3, got 2",
            "Pass `p` as `[n, 3]`.",
        ],
    ),
    "a fixed size, transposed": (
        ("p[n, 3] -> y[n]", {"p": (3, 10)}, {}),
        [
            "ShapeError: `p` does not fit its spec in op `f`",
            "  p  [n, 3] = (3, 10)      <- expected 3, got 10",
            "Pass `p.mT`, which is (10, 3), if its dims are in the other order.",
        ],
    ),
    "a name twice in an item": (
        ("x[n, n] -> y[n]", {"x": (3, 4)}, {}),
        [
            "ShapeError: `x` does not fit its spec in op `f`",
            "  x  [n, n] = (3, 4)      <- n was 3",
            "Pass one size wherever the spec says `n`.",
        ],
    ),
    "no broadcasting of the second": (
        ("a[n, m], b[n, m] -> y[n]", {"a": (3, 4), "b": (3, 1)}, {}),
        [
            "ShapeError: `b` does not fit `a` in op `f`",
            "  a  [n, m] = (3, 4)",
            "  b  [n, m] = (3, 1)      <- m was 4",
            "Nothing is broadcast: pass `b.expand(3, 4)`.",
        ],
    ),
    "no broadcasting of the first": (
        ("a[n], b[n, m] -> y[n]", {"a": (1,), "b": (3, 1)}, {}),
        [
            "ShapeError: `b` does not fit `a` in op `f`",
            "  a  [n] = (1,)",
            "  b  [n, m] = (3, 1)      <- n was 1",
            "Nothing is broadcast: pass `a.expand(3)`.",
        ],
    ),
    "no broadcasting in a batch": (
        ("a[*b, n], k[*b, n] -> y[*b]", {"a": (2, 3), "k": (2, 1)}, {}),
        [
            "ShapeError: `k` does not fit `a` in op `f`",
            "  a  [*b, n] = (2, 3)",
            "  k  [*b, n] = (2, 1)      <- n was 3",
            "Nothing is broadcast: pass `k.expand(2, 3)`.",
        ],
    ),
    "batches": (
        ("x[*b, n], k[*b, m] -> y[*b]", {"x": (2, 5, 8), "k": (3, 5, 4)}, {}),
        [
            "ShapeError: `k` does not fit `x` in op `f`",
            "  x  [*b, n] = (2, 5, 8)",
            "  k  [*b, m] = (3, 5, 4)      <- *b was (2, 5)",
            "Pass the same dims wherever the spec says `*b`: nothing is broadcast.",
        ],
    ),
    "batches of other ranks": (
        ("x[*b], k[n], z[*b] -> y[*b]", {"x": (2,), "k": (3,), "z": ()}, {}),
        [
            "ShapeError: `z` does not fit `x` in op `f`",
            "  x  [*b] = (2,)",
            "  z  [*b] = ()        <- *b was (2,)",
            "Pass the same dims wherever the spec says `*b`: nothing is broadcast.",
        ],
    ),
    "rests": (
        ("x[n, ...], k[..., 3] -> y[...]", {"x": (2, 5, 8), "k": (5, 9, 3)}, {}),
        [
            "ShapeError: `k` does not fit `x` in op `f`",
            "  x  [n, ...] = (2, 5, 8)",
            "  k  [..., 3] = (5, 9, 3)      <- ... was (5, 8)",
            "Pass the same dims wherever the spec says `...`: nothing is broadcast.",
        ],
    ),
    "a scalar": (
        ("x[n, 3] -> y[n]", {"x": (4, 3)}, {"n": 5}),
        [
            "ShapeError: `n` does not fit `x` in op `f`",
            "  x  [n, 3] = (4, 3)",
            "  n  5                    <- n was 4",
            "Pass n=4, or give the dim of `x` another name in the spec.",
        ],
    ),
    "one dim missing": (
        ("x[n] -> y[n, h]", {"x": (4,)}, {}),
        [
            "ArgumentError: Nothing gives the size of `h` in op `f`",
            "  y  [n, h]",
            "Pass h=... with the call.",
        ],
    ),
    "three dims missing": (
        ("-> y[h, w, 3], z[1] | t[h * d]", {}, {"c": 1}),
        [
            "ArgumentError: Nothing gives the size of `h`, `w` and `d` in op `f`",
            "  y  [h, w, 3]",
            "  t  [h * d]",
            "Pass h=..., w=... and d=... with the call.",
        ],
    ),
    "a fraction": (
        ("-> y[h, w]", {}, {"h": 2.0, "w": 3}),
        [
            "ArgumentError: `h` is a size in op `f`, and 2.0 is not an integer",
            "  y  [h, w]",
            "Pass h=... as an int, not as a float.",
        ],
    ),
    "a boolean": (
        ("-> y[h]", {}, {"h": True}),
        [
            "ArgumentError: `h` is a size in op `f`, and True is not an integer",
            "  y  [h]",
            "Pass h=... as an int, not as a bool.",
        ],
    ),
    "text": (
        ("-> y[h + 1]", {}, {"h": "12"}),
        [
            "ArgumentError: `h` is a size in op `f`, and '12' is not an integer",
            "  y  [h + 1]",
            "Pass h=... as an int, not as a str.",
        ],
    ),
    "a tensor of many": (
        ("-> y[h]", {}, {"h": torch.tensor([1, 2])}),
        [
            "ArgumentError: `h` is a size in op `f`, and tensor([1, 2]) is not an integer",
            "  y  [h]",
            "Pass h=... as an int, not as a Tensor.",
        ],
    ),
    "negative": (
        ("x[n], k[m], z[n] -> y[n - m + 1]", {"x": (3,), "k": (5,), "z": (3,)}, {}),
        [
            "ShapeError: `y` would have a negative size in op `f`",
            "  x  [n] = (3,)",
            "  k  [m] = (5,)",
            "  y  [n - m + 1]      <- n - m + 1 is -1",
            "Pass sizes for which `n - m + 1` is 0 or more.",
        ],
    ),
    "negative keyword": (
        ("x[n] -> y[n, h]", {"x": (3,)}, {"h": -1}),
        [
            "ShapeError: `y` would have a negative size in op `f`",
            "  h  -1",
            "  y  [n, h]      <- h is -1",
            "Pass h=0 or more.",
        ],
    ),
    "negative with a keyword": (
        ("x[n] -> y[n - h]", {"x": (3,)}, {"h": 4}),
        [
            "ShapeError: `y` would have a negative size in op `f`",
            "  x  [n] = (3,)",
            "  h  4",
            "  y  [n - h]         <- n - h is -1",
            "Pass sizes for which `n - h` is 0 or more.",
        ],
    ),
    "a divisor": (
        ("x[n] -> y[n // s]", {"x": (3,)}, {"s": 0}),
        [
            "ShapeError: The size of `y` divides by zero in op `f`",
            "  x  [n] = (3,)",
            "  s  0",
            "  y  [n // s]        <- s is 0",
            "Pass sizes for which `s` is not 0.",
        ],
    ),
    "a computed divisor": (
        ("x[n] -> y[1 + n // (m - n)]", {"x": (3,)}, {"m": 3}),
        [
            "ShapeError: The size of `y` divides by zero in op `f`",
            "  x  [n] = (3,)",
            "  m  3",
            "  y  [1 + n // (m - n)]      <- m - n is 0",
            "Pass sizes for which `m - n` is not 0.",
        ],
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_the_messages_of_arguments_that_do_not_fit(case):
    (spec, shapes, values), message = MISFITS[case]
    spec, _, scratch = spec.partition(" | ")
    with pytest.raises(TinsmithError) as caught:
        solve(parse(spec, scratch), shapes, values, "f")
    assert f"{caught.type.__name__}: {caught.value}".split("\n") == message


UNEXPECTED = {
    "hh": (
        "op `splat` has no argument `hh`",
        "  arguments  pos, seed",
        "  dims       h, w",
        "Did you mean `h`?",
    ),
    "sed": (
        "op `splat` has no argument `sed`",
        "  arguments  pos, seed",
        "  dims       h, w",
        "Did you mean `seed`?",
    ),
    "zebra": (
        "op `splat` has no argument `zebra`",
        "  arguments  pos, seed",
        "  dims       h, w",
        "Leave `zebra` out.",
    ),
    "n": (
        "op `splat` takes `n` from the shape of `pos`",
        "  pos  [n, 3]",
        "Leave `n` out.",
    ),
    "image": (
        "op `splat` allocates `image` itself",
        "  arguments  pos, seed",
        "  dims       h, w",
        "Leave `image` out.",
    ),
    "t": (
        "op `splat` allocates `t` itself",
        "  arguments  pos, seed",
        "  dims       h, w",
        "Leave `t` out.",
    ),
}


@pytest.mark.parametrize("keyword", UNEXPECTED)
def test_the_messages_of_unexpected_keywords(keyword):
    spec = parse("pos[n, 3] -> image[h, w]", "t[n]")
    error = unexpected_keyword(spec, keyword, ["pos", "seed"], "splat")
    assert isinstance(error, ArgumentError)
    assert str(error).split("\n") == list(UNEXPECTED[keyword])


def test_an_op_without_arguments_and_dims_has_no_table():
    error = unexpected_keyword(parse("-> y[3]"), "q", [], "f")
    assert str(error) == "op `f` has no argument `q`\nLeave `q` out."
