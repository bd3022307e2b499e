"""The spec language: what it reads, and the words for each mistake that can be made in it (spec_mistakes.txt)."""

import copy
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.specs import specs
from tinsmith._errors import ArgumentError, SpecError
from tinsmith.spec import Anything, Arithmetic, Batch, Fixed, Item, Named, Rest, parse

READ = [
    ("x[]", [Item("x", ())]),
    ("x[n]", [Item("x", (Named("n"),))]),
    ("x[n, 3, _]: f32", [Item("x", (Named("n"), Fixed(3), Anything()), "f32")]),
    ("x[n, ...], k[..., 0]", [Item("x", (Named("n"), Rest())), Item("k", (Rest(), Fixed(0)))]),
    ("x[ 1_000 ,n ]\n:i64", [Item("x", (Fixed(1000), Named("n")), "i64")]),
    ("Σ[größe], x_1[_n]", [Item("Σ", (Named("größe"),)), Item("x_1", (Named("_n"),))]),
    ("x[(n)]", [Item("x", (Named("n"),))]),
    ("x[f32]", [Item("x", (Named("f32"),))]),
    ("match[type]", [Item("match", (Named("type"),))]),  # Python's soft keywords are names
]


@pytest.mark.parametrize(("text", "items"), READ)
def test_inputs_are_read(text, items):
    spec = parse(f"{text} -> out[1]")
    assert list(spec.inputs) == items
    assert spec.outputs == (Item("out", (Fixed(1),)),)


def test_a_batch_is_read():
    spec = parse("x[*b, n], k[*b] -> y[*b]")
    assert spec.inputs == (Item("x", (Batch("b"), Named("n"))), Item("k", (Batch("b"),)))


COMPUTED = [
    ("n - m + 1", ("+", ("-", "n", "m"), 1), "n - m + 1"),
    ("n-(m+1)", ("-", "n", ("+", "m", 1)), "n - (m + 1)"),
    ("n + m * 2", ("+", "n", ("*", "m", 2)), "n + m * 2"),
    ("(n + m) * 2", ("*", ("+", "n", "m"), 2), "(n + m) * 2"),
    ("n // 2 * 2", ("*", ("//", "n", 2), 2), "n // 2 * 2"),
    ("n // (2 * 2)", ("//", "n", ("*", 2, 2)), "n // (2 * 2)"),
    ("((n)) + ((1 * 2))", ("+", "n", ("*", 1, 2)), "n + 1 * 2"),
    ("n*0//1", ("//", ("*", "n", 0), 1), "n * 0 // 1"),
]


@pytest.mark.parametrize(("text", "tree", "written"), COMPUTED)
def test_arithmetic_is_read_in_outputs_and_scratch(text, tree, written):
    spec = parse(f"x[n], k[m] -> y[{text}]", f"t[{text}]")
    assert spec.outputs[0].dims == spec.scratch[0].dims == (Arithmetic(written, tree),)


def test_a_spec_knows_its_items_and_names():
    spec = parse("x[*b, n, 3], k[m, n] -> y[*b, h, n + w], z[*b]", "t[*b, w, c * m]: f32")
    assert [item.name for item in spec.items] == ["x", "k", "y", "z", "t"]
    assert [item.column for item in spec.items] == [0, 13, 24, 41, 0]
    assert spec.batch_name == "b"
    assert spec.input_dims == ("n", "m")
    assert spec.free_dims == ("h", "w", "c")
    assert spec.text.startswith("x[*b") and spec.scratch_text.startswith("t[*b")
    assert str(spec) == "x[*b, n, 3], k[m, n] -> y[*b, h, n + w], z[*b]"
    assert str(spec.scratch[0]) == "t[*b, w, c * m]: f32"


def test_inputs_and_scratch_may_be_empty():
    for scratch in (None, "", " \n"):
        spec = parse("-> y[n]", scratch)
        assert spec.inputs == spec.scratch == ()
        assert spec.free_dims == ("n",) and spec.batch_name is None
        assert str(spec) == "-> y[n]"


@pytest.mark.parametrize("again", [copy.deepcopy, lambda spec: pickle.loads(pickle.dumps(spec))])
def test_specs_copy_and_pickle(again):
    spec = parse("x[*b, n], k[...] -> y[*b, n + 1, h, ...]: f32", "t[*b, n]")
    assert spec.free_dims == ("h",)  # remembered by the original before it is copied
    assert again(spec) == spec and hash(again(spec)) == hash(spec)
    assert again(spec).free_dims == ("h",)


@settings(max_examples=150, deadline=None)
@given(specs(), st.randoms(use_true_random=False))
def test_a_spec_reads_back_as_written_whatever_its_spaces(spec, random):
    def spaced(text):
        tokens = re.findall(r"\w+|->|//|\.\.\.|\S", text)
        return "".join(random.choice(["", "", " ", "\n", "\t "]) + token for token in tokens)

    again = parse(spaced(str(spec)), spaced(", ".join(map(str, spec.scratch))))
    assert (again.inputs, again.outputs, again.scratch) == (spec.inputs, spec.outputs, spec.scratch)
    assert str(again) == str(spec)


BLOCKS = (Path(__file__).parent / "spec_mistakes.txt").read_text(encoding="utf-8").strip().split("\n\n")
MISTAKES = [block.split("\n") for block in BLOCKS if not block.startswith("#")]


@pytest.mark.parametrize(("text", "caret", "headline", "remedy"), MISTAKES)
def test_the_messages_of_mistakes(text, caret, headline, remedy):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value).split("\n") == [headline, text, caret, remedy]


SCRATCH_MISTAKES = [
    (
        "t[n] -> u[n]",
        "     ^",
        "`scratch` takes no `->`",
        'Write a list of items: `scratch="t[n], u[n, 3]: f32"`.',
    ),
    (
        "t",
        "^",
        "`t` has no brackets",
        "Write `t[]` for a 0-d tensor, `t[n]` for one dim; leave plain scalars out of the spec.",
    ),
    (
        "t[n], x[n]",
        "      ^",
        "`x` is an input already and cannot be scratch too",
        "Give the kernel a parameter of its own for what it writes: an op never changes its inputs.",
    ),
    (
        "y[n]",
        "^",
        "`y` is an output already and cannot be scratch too",
        "List it as an output only: outputs, too, begin at zero.",
    ),
    (
        "t[n], t[n]",
        "      ^",
        "`t` is listed twice",
        "Write each parameter of the kernel once.",
    ),
    (
        "t[_]",
        "  ^",
        "`_` gives no size to `t`, which is scratch",
        "Write a name or a number: tinsmith allocates it, so its sizes must be known.",
    ),
    (
        "t[*b, n]",
        "^",
        "No input says what `*b` is",
        "Begin an input with `*b`, or leave it out here.",
    ),
]


@pytest.mark.parametrize(("scratch", "caret", "headline", "remedy"), SCRATCH_MISTAKES)
def test_mistakes_in_scratch_point_into_scratch(scratch, caret, headline, remedy):
    with pytest.raises(SpecError) as caught:
        parse("x[n] -> y[n]", scratch)
    assert str(caught.value).split("\n") == [headline, f"  {scratch}", f"  {caret}", remedy]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\n    x[n],\n    k[m\n    -> y[n]\n", ["  k[m", "   ^"]),
        ("x[n],\n\tk[m]\n", ["  k[m]", "      ^"]),
        ("x[n],\tk(m) -> y[n]", ["  x[n], k(m) -> y[n]", "         ^"]),
    ],
)
def test_the_line_of_the_mistake_is_shown(text, shown):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value).split("\n")[1:-1] == shown


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_spec_has_nothing_to_point_at(text):
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value) == (
        "The spec is empty\nWrite the inputs, `->` and the outputs: `x[n], k[m] -> y[n - m + 1]`."
    )


NO_STRINGS = [
    (
        (len,),
        "A spec must be a string, and got a function or kernel",
        'Write the spec first: `@ts.op("x[n], k[m] -> y[n - m + 1]")`.',
    ),
    (
        ("x[n] -> y[n]", ["t[n]"]),
        "`scratch` must be a string, and got `list`",
        'Write a list of items: `scratch="t[n], u[n, 3]: f32"`.',
    ),
]


@pytest.mark.parametrize(("arguments", "headline", "remedy"), NO_STRINGS)
def test_other_objects_are_refused(arguments, headline, remedy):
    with pytest.raises(ArgumentError) as caught:
        parse(*arguments)
    assert str(caught.value).split("\n") == [headline, remedy]


@settings(max_examples=300, deadline=None)
@given(st.text("xn*_.->[](),:3+/ \n", max_size=25))
def test_random_texts_are_parsed_or_refused_with_a_caret(text):
    try:
        parse(text)
    except SpecError as error:
        headline, *shown, remedy = str(error).split("\n")
        assert not headline.endswith(".") and remedy.endswith(".")
        assert not text.strip() or shown[1].strip() == "^"
