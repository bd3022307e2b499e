"""`ts.sanitize` on memory: races, reads of nothing, overwritten values, indices outside. Mistakes and their twins."""

import pytest
import torch

import tinsmith as ts
from support.findings import read_pointed_text, sanitize_call
from support.written import compile_text

X = torch.tensor([0.5, 1.5, 2.5, 3.5])


# Races (TS601) ----------------------------------------------------------------------------------


def test_two_iterations_write_one_element(lang):
    @ts.op("x[n] -> y[n]", races="allow")
    @lang.kernel
    def halves(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i // 2] = x[i]  # here

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def sums(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i // 2] += x[i]

    race = sanitize_call(halves, X).one("TS601", "here")
    assert race.severity == "error"
    assert "`y[0]` is written on line" in race.message
    assert "in iteration i = 1" in race.message
    words = (
        "in iteration i = 0 of one parallel loop: which value stays depends on the order of the iterations (once more)"
    )
    assert words in race.message
    assert "+=" in race.remedy
    assert read_pointed_text(race).startswith("y[i // 2]")
    assert sanitize_call(sums, X) == []


def test_one_iteration_reads_what_another_writes(lang):
    @ts.op("x[n] -> y[n], z[n]", races="allow")
    @lang.kernel
    def shifted(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]  # write
            if i > 0:
                z[i] = y[i - 1]

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def in_order(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i] = x[i]
            if i > 0:
                y[i] += y[i - 1]

    race = sanitize_call(shifted, X).one("TS601", "write")
    assert "and read on line" in race.message
    assert "whether the old or the new value is read depends on the order of the iterations" in race.message
    assert "loop_config(serialize=True)" in race.remedy
    assert "TS601" not in sanitize_call(in_order, X).rules


def test_two_loops_never_race(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def two(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
        for i in x:
            y[(i + 1) % x.shape[0]] += 1.0

    assert sanitize_call(two, X) == []


def test_an_atomic_and_a_plain_write(lang):
    @ts.op("x[n] -> y[]", races="allow")
    @lang.kernel
    def mixed(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if i == 2:
                y[None] = 0.0  # plain
            y[None] += x[i]

    race = sanitize_call(mixed, X).one("TS601", "plain")
    assert "`y[None]` is written on line" in race.message
    assert "added to on line" in race.message
    assert "what is left depends on the order of the iterations" in race.message


@pytest.mark.parametrize("second", ["atomic_max", "atomic_add"])
def test_atomics_of_two_kinds(lang, second):
    other = getattr(lang, second)

    @ts.op("x[n] -> y[]", races="allow")
    @lang.kernel
    def both(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[None] += x[i]  # sum
            other(y[None], x[i])

    findings = sanitize_call(both, X)
    if second == "atomic_add":
        assert findings == []
        return
    race = findings.one("TS601", "sum")
    assert "atomic max" in race.message
    assert "added to" in race.message


def test_an_iteration_may_read_what_it_wrote_like_others(lang):
    """The value is the same in any order, unless the iterations write different values, or read before they write."""
    assert "TS601" not in sanitize_call(marks_op(lang, "flag[i // 2] = 1", "pass"), X).rules
    assert sanitize_call(marks_op(lang, "flag[i // 2] = i", "pass"), X).one("TS601", "first").severity == "error"
    assert (
        sanitize_call(marks_op(lang, "flag[i // 2] = 1", "flag[i // 2] = 2"), X).one("TS601", "first").severity
        == "error"
    )
    read_first = sanitize_call(marks_op(lang, "y[i] = flag[i // 2] * x[i]", "flag[i // 2] = 1"), X).one(
        "TS601", "second"
    )
    assert "whether the old or the new value is read" in read_first.message


def marks_op(lang, first, second):
    kernel = compile_text(
        lang,
        f"""
def marks(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1),
          flag: lang.types.ndarray(dtype=lang.i32, ndim=1)):
    for i in x:
        {first}  # first
        y[i] += flag[i // 2] * x[i]
        {second}  # second
""",
    )
    return ts.op("x[n] -> y[n], flag[n]: i32", races="allow")(kernel)


def test_the_same_float_twice_is_a_warning(lang):
    """Of integers it is a flag."""

    @ts.op("x[n] -> y[], flag[]: i32, height[]")
    @lang.kernel
    def flags(
        x: lang.types.ndarray(), y: lang.types.ndarray(), flag: lang.types.ndarray(), height: lang.types.ndarray()
    ):
        for i in x:
            y[None] += x[i]
            if x[i] > 1.0:
                flag[None] = 1
                height[None] = 1.5  # height

    @ts.op("x[n] -> flag[]: i32", races="allow")
    @lang.kernel
    def other_values(x: lang.types.ndarray(), flag: lang.types.ndarray()):
        for i in x:
            if x[i] > 1.0:
                flag[None] = 1 + i // 3  # flag

    race = sanitize_call(flags, X).one("TS601", "height")
    assert race.severity == "warning"
    assert "both write the same value" in race.message
    assert sanitize_call(other_values, X).one("TS601", "flag").severity == "error"


def test_a_local_of_the_top_level(lang):
    @ts.op("x[n] -> y[]", races="allow")
    @lang.kernel
    def last(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        for i in x:
            s = x[i]  # here
        y[None] = s

    @ts.op("x[n] -> y[]", races="allow")
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        for i in x:
            s += x[i]
        y[None] = s

    race = sanitize_call(last, X).one("TS601", "here")
    assert "the local `s` is written" in race.message
    assert read_pointed_text(race).startswith("s = x[i]")
    assert sanitize_call(total, X) == []


def test_iterations_of_several_names_and_vectors(lang):
    @ts.op("x[n, m] -> y[n, 2]", races="allow")
    @lang.kernel
    def columns(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.math.vec2, ndim=1)):
        for a, b in x:
            y[a] = lang.Vector([x[a, b], 1.0])  # two
        for ij in lang.grouped(x):
            y[0][1] = x[ij]  # grouped

    findings = sanitize_call(columns, torch.rand(2, 3))
    assert "`y[0][0]` is written" in findings.one("TS601", "two").message
    assert "in iteration a = 0, b = 1" in findings.one("TS601", "two").message
    assert "`y[0][1]` is written" in findings.one("TS601", "grouped").message
    assert "in iteration ij = [0, 1]" in findings.one("TS601", "grouped").message


# Reads of nothing (TS602) -----------------------------------------------------------------------


def recurrence(lang, **options):
    @ts.op("x[n] -> y[n]", **options)
    @lang.kernel
    def recurrence(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(1, x.shape[0]):
            y[i] = y[i - 1] * x[i]  # here

    return recurrence


def test_an_element_is_read_that_nothing_wrote(lang):
    finding = sanitize_call(recurrence(lang), X).one("TS602", "here")
    assert finding.severity == "warning"
    assert "`y[0]` is read in iteration i = 1 before it is written: the read returns zero" in finding.message
    assert read_pointed_text(finding).startswith("y[i - 1]")


def test_uninitialized_outputs(lang):
    finding = sanitize_call(recurrence(lang, init={"y": "empty"}), X).one("TS602", "here")
    assert finding.severity == "error"
    assert '`y` starts uninitialized, since its `init` is "empty"' in finding.message
    assert '"y" out of `init`' in finding.remedy


@pytest.mark.parametrize("init", [{}, {"y": "empty"}])
def test_adding_onto_what_an_output_starts_with(lang, init):
    @ts.op("x[n] -> y[]", init=init)
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[None] += x[i]  # here

    findings = sanitize_call(total, X)
    if not init:
        assert findings == []
        return
    assert findings.one("TS602", "here").severity == "error"


def test_inputs_and_written_scratch_hold_something(lang):
    @ts.op("x[n] -> y[n]", scratch="t[n]")
    @lang.kernel
    def twice(x: lang.types.ndarray(), t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            t[i] = x[i] * x[i]
        for i in x:
            y[i] = t[i] + t[0]

    assert sanitize_call(twice, X) == []


# Overwritten after it was read (TS603) ----------------------------------------------------------


def test_a_value_is_overwritten_after_it_was_read(lang):
    @ts.op("x[n] -> y[]")
    @lang.kernel
    def average(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for _ in range(1):
            y[None] = x[0]
            for j in range(1, x.shape[0]):
                y[None] = 0.9 * y[None] + 0.1 * x[j]  # here

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def kept(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for _ in range(1):
            y[0] = x[0]
            for j in range(1, x.shape[0]):
                y[j] = 0.9 * y[j - 1] + 0.1 * x[j]

    finding = sanitize_call(average, X).one("TS603", "here")
    assert finding.severity == "warning"
    place = "in iteration _ = 0, j = 1"
    assert (
        f"`y[None]` is overwritten {place}, after its value was read on line {finding.line} {place}: "
        in finding.message
    )
    assert "an engine's own reverse pass takes the new one" in finding.message
    assert "(2 more times)" in finding.message
    assert sanitize_call(kept, X) == []


def test_a_later_kernel_overwrites_what_an_earlier_one_read(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            t[i] = x[i]
        for i in x:
            y[i] = t[i] * t[i]

    @lang.kernel
    def second(x: lang.types.ndarray(), t: lang.types.ndarray()):
        for i in x:
            t[i] = 2.0 * x[i]  # here

    op = ts.chain("x[n] -> y[n]", [first, second], scratch="t[n]")
    assert "by an earlier kernel" in sanitize_call(op, X).one("TS603", "here").message


# Indices outside (TS604) ------------------------------------------------------------------------


def test_an_index_behind_the_last_and_a_negative_one(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def slopes(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i + 1] - x[i - 1]  # tinsmith: ignore[TS109]  # here

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def guarded(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0] - 1):
            y[i] = x[i + 1] - x[i - 1]

    before, behind = sorted(sanitize_call(slopes, X).of("TS604"), key=lambda one: -one.column)
    assert before.severity == behind.severity == "error"
    assert "`x[4]` is read in iteration i = 3, and `x` has the shape (4,): the last index is 3" in behind.message
    assert "other memory is read" in behind.message
    assert read_pointed_text(behind).startswith("x[i + 1]")
    assert "`x[-1]` is read in iteration i = 0" in before.message
    assert "-1 is negative" in before.message
    assert read_pointed_text(before).startswith("x[i - 1]")
    assert "x.shape[0]" in before.remedy
    assert sanitize_call(guarded, X) == []


def test_stores_out_of_range_are_skipped(lang):
    @ts.op("x[n], k[n] -> y[m], z[n]: i32")
    @lang.kernel
    def scatter(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[k[i]] += x[i]  # add
            z[i] = lang.atomic_add(y[k[i] + 1], 1.0)  # fetch
            y[0 - i] = x[k[i]]  # store

    findings = sanitize_call(scatter, X, torch.tensor([0, 1, 2, 3], dtype=torch.int32), m=3)
    assert "`y[3]` is written in iteration i = 3, and `y` has the shape (3,)" in findings.one("TS604", "add").message
    assert "`y[3]`" in findings.one("TS604", "fetch").message
    assert "`y[-1]` is written" in findings.one("TS604", "store").message


def test_an_index_outside_one_dim_that_is_inside_the_memory(lang):
    @ts.op("x[n, m] -> y[n, m]")
    @lang.kernel
    def right(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i, j] = x[i, j + 1]  # tinsmith: ignore[TS109]  # here

    finding = sanitize_call(right, torch.rand(3, 2)).one("TS604", "here")
    assert (
        "`x[0, 2]` is read in iteration i = 0, j = 1, and `x` has the shape (3, 2): the last index is 1"
        in finding.message
    )
    assert "x.shape[1]" in finding.remedy


def test_a_field_is_named_by_its_label(lang):
    @lang.data_oriented
    class Table:
        def __init__(self):
            self.values = lang.field(lang.f32, 3)
            self.values.from_torch(torch.tensor([1.0, 2.0, 3.0]))

        @ts.op("x[n] -> y[n]")
        @lang.kernel
        def look(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = x[i] * self.values[i]  # here

    table = Table()
    finding = sanitize_call(table.look, X).one("TS604", "here")
    assert "`self.values[3]` is read in iteration i = 3, and `self.values` has the shape (3,)" in finding.message
    assert read_pointed_text(finding).startswith("self.values[i]")
    assert sanitize_call(table.look, X[:3]) == []


def test_inside_a_function_the_line_is_its_own(lang):
    @lang.func
    def neighbor(values: lang.template(), i):
        nearby = values[i + 1]  # in the function
        return 2.0 * nearby

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def moved(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = neighbor(x, i)

    nearby = sanitize_call(moved, X).one("TS604", "in the function")
    assert "`x[4]`" in nearby.message
    assert read_pointed_text(nearby).startswith("values[i + 1]")


def test_samples_of_a_batch_share_a_finding(lang):
    @ts.op("x[*b, n] -> y[*b, n]")
    @lang.kernel
    def moved(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i + 1]  # tinsmith: ignore[TS109]  # here

    findings = sanitize_call(moved, torch.rand(2, 3, 4))
    assert "`x[4]`" in findings.one("TS604", "here").message
    assert "(5 more times)" in findings.one("TS604", "here").message
    assert findings.rules == {"TS604"}


def test_a_comment_turns_a_finding_off(lang):
    @ts.op("x[n] -> y[n], z[n]", races="allow")
    @lang.kernel
    def halves(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[i // 2] = x[i]  # tinsmith: ignore[TS601]
            z[i // 2] = x[i]  # tinsmith: ignore[TS101]

    (race,) = sanitize_call(halves, X).of("TS601")
    assert read_pointed_text(race).startswith("z[i // 2]")


# Elements that nothing writes (TS610) -----------------------------------------------------------


def test_an_uninitialized_output_is_written_in_part(lang):
    @lang.kernel
    def inner(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0] - 1):
            y[i] = x[i + 1] - x[i - 1]  # tinsmith: ignore[TS109]  # here

    left = sanitize_call(ts.op("x[n] -> y[n]", init={"y": "empty"})(inner), X).one("TS610", "here")
    assert left.severity == "error" and read_pointed_text(left).startswith("y[i] = ")
    assert left.message == (
        '2 elements of `y`, as `y[0]`, are never written, and `y` starts uninitialized, since its `init` is "empty"'
    )
    assert 'leave "y" out of `init`' in left.remedy
    assert sanitize_call(ts.op("x[n] -> y[n]")(inner), X) == []
    many = sanitize_call(ts.op("x[*b, n] -> y[*b, n]", init={"y": "empty"})(inner), X.expand(3, 4))
    assert many.one("TS610", "here").message.endswith("(2 more times)")


def test_all_of_an_output_is_written_by_two_loops(lang):
    @ts.op("x[n] -> y[n, 2]", init={"y": "empty"})
    @lang.kernel
    def both(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i, 0] = x[i]
        for i in range(x.shape[0]):
            if x[i] > 0.0:
                y[i, 1] = x[i]  # here

    assert sanitize_call(both, X) == []
    left = sanitize_call(both, torch.tensor([1.0, -1.0, 2.0])).one("TS610", "here")
    assert left.message.startswith("`y[1, 1]` is never written")


def test_an_output_of_vectors_is_written_in_part(lang):
    vector = lang.types.vector(3, lang.f32)

    @ts.op("x[n] -> y[n, 3], z[]", init={"y": "empty", "z": "empty"})
    @lang.kernel
    def points(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=vector, ndim=1), z: lang.types.ndarray()):
        for i in x:
            if i != 1:
                y[i] = lang.Vector([x[i], 0.0, 1.0])  # here
        for _ in range(1):
            if x[0] > 1.0:
                z[None] = x[0]  # there

    findings = sanitize_call(points, X)
    assert findings.one("TS610", "here").message.startswith("3 elements of `y`, as `y[1, 0]`, are never written")
    assert findings.one("TS610", "there").message.startswith("`z[None]` is never written")


def test_a_kernel_after_another_writes_the_rest(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0]):
            y[i] = x[i]

    @lang.kernel
    def second(y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in range(1, y.shape[0]):
            z[i] = 2.0 * y[i]
        for i in range(y.shape[0]):
            if i == 0:
                y[i] = 1.0

    empty = {"y": "empty", "z": "empty"}
    findings = sanitize_call(ts.chain("x[n] -> y[n], z[n]", [first, second], init=empty), X)
    assert [one.message.split(",")[0] for one in findings.of("TS610")] == ["`z[0]` is never written"]


def test_scratch_that_starts_as_anything_may_be_written_in_part_and_is_not_read_before(lang):
    @lang.kernel
    def inner(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0]):
            h[i] = 2.0 * x[i]
        for i in range(1, x.shape[0]):
            y[i] = h[i]

    @lang.kernel
    def early(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, x.shape[0]):
            h[i] = 2.0 * x[i]
        for i in x:
            y[i] = h[i]  # here

    for how in ("empty", "workspace"):
        make = ts.op("x[n] -> y[n]", scratch="h[n]", init={"h": how})
        assert sanitize_call(make(inner), X) == []
        assert sanitize_call(make(early), X).one("TS602", "here").severity == "error"
    assert sanitize_call(ts.op("x[n] -> y[n]", scratch="h[n]")(early), X).one("TS602", "here").severity == "warning"
