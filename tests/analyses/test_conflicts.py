"""Conflicts between iterations: which loops race certainly, which possibly, and which do not."""

import pytest

from support.written import compile_text
from tinsmith.analyses import find_conflicts, find_disjoint_arrays
from tinsmith.engines import of_kernel
from tinsmith.frontend import read
from tinsmith.frontend.lowering import lower
from tinsmith.ir import nodes

ARRAYS = {  # name: (type, rank, sizes)
    "x": ("f32", 1, ("n",)),
    "y": ("f32", 1, ("n",)),
    "z": ("f32", 1, ("n // 2",)),
    "t": ("f32", 1, ("m",)),
    "a": ("f32", 2, ("n", "m")),
    "k": ("i32", 1, ("n",)),
    "flag": ("i32", 1, ("m",)),
    "count": ("i32", 1, (1,)),
    "best": ("f32", 1, (1,)),
}
ARGUMENTS = {"s": ("i32", ()), "c": ("i32", ())}


def lowered(lang, text):
    body = text.replace("\n", "\n    ")
    annotations = ", ".join(
        [f"{name}: lang.types.ndarray()" for name in ARRAYS] + [f"{name}: lang.i32" for name in ARGUMENTS]
    )
    kernel = compile_text(lang, f"def kernel({annotations}):\n    {body}\n".replace("ti.", "lang."))
    arrays = {name: nodes.Array(name, kind, rank, dims=dims) for name, (kind, rank, dims) in ARRAYS.items()}
    engine = of_kernel(kernel)
    return lower(read(engine.function_of(kernel)), engine, arrays, arguments=ARGUMENTS).kernel


def conflicts_of(lang, text):
    return find_conflicts(lowered(lang, text))


N = "range(x.shape[0])"
CERTAIN = {
    "the element before": f"for i in {N}:\n    if i > 0:\n        y[i] = y[i - 1] + x[i]",
    "added to, and the element before": "for i in range(1, x.shape[0]):\n    y[i] += 0.5 * y[i - 1]",
    "the element behind": f"for i in {N}:\n    if i < x.shape[0] - 1:\n        y[i] = y[i + 1]",
    "not the first": f"for i in {N}:\n    if i != 0:\n        y[i] = y[i - 1] * x[i]",
    "three store to one": f"for i in {N}:\n    z[i // 3] = x[i]",
    "all store to one": f"for i in {N}:\n    y[0] = x[i]",
    "a sum in a store": f"for i in {N}:\n    y[0] = y[0] + x[i]",
    "a maximum in a store": f"for i in {N}:\n    best[0] = ti.max(best[0], x[i])",
    "rows store to a column": "for i, j in a:\n    y[j] = a[i, j]",
    "sums of columns in stores": "for i, j in a:\n    t[j] = t[j] + a[i, j]",
    "a sum that others read": f"for i in {N}:\n    t[0] += x[i]\n    y[i] = t[0]",
    "two ways to change": f"for i in {N}:\n    t[0] += x[i]\n    ti.atomic_max(t[0], x[i])",
    "a local": f"best2 = 0.0\nfor i in {N}:\n    best2 = best2 * 0.5 + x[i]\ny[0] = best2",
    "diagonal": "for i, j in a:\n    if i > 0 and j > 0:\n        a[i, j] = a[i - 1, j - 1]",
    "both halves of a range": "for i in range(x.shape[0] // 2 + 1):\n    y[i] = y[i + x.shape[0] // 2]",
    "an inner loop": f"for i in {N}:\n    for j in range(3):\n        y[i + j] = x[i]",
    "a reversed copy in place": f"for i in {N}:\n    y[i] = y[x.shape[0] - 1 - i]",
    "by continue": f"for i in {N}:\n    if i == 0:\n        continue\n    y[i] = y[i - 1]",
    "remainders": "for i in range(2 * x.shape[0]):\n    y[i % x.shape[0]] = 1.0 * i",
    "products": "for i, j in a:\n    y[i * x.shape[0] + j] = y[i * x.shape[0] + j + 1]",
    "a number counted by an inner loop": (
        f"for i in {N}:\n    p = 0\n    for j in range(3):\n        y[p] = x[i]\n        p += 1"
    ),
    "a number counted down": (
        f"for i in {N}:\n    p = 4\n    for j in range(3):\n        p -= 2\n        y[p + i] = x[i]"
    ),
    "a number counted by a while": (
        f"for i in {N}:\n    j = 0\n    while j < 3:\n        y[j] = y[j] * 0.5 + x[i]\n        j += 1"
    ),
    "neighbors read by a while": (
        "for i in range(x.shape[0] - 3):\n    u = 0.0\n    j = 1\n    while j < 3:\n        u += y[i + j]\n"
        "        j += 1\n    y[i] = u * 0.3"
    ),
    "the second number of a while": (
        f"for i in {N}:\n    j = 0\n    while j < 3:\n        y[2 * i + j] = x[i]\n        j += 1"
    ),
    "the last number of a while": (
        f"for i in {N}:\n    j = 0\n    while j <= 5:\n        y[5 * i + j] = x[i]\n        j += 1"
    ),
    "a while by break": (
        f"for i in {N}:\n    j = 0\n    while True:\n        if j >= 2:\n            break\n"
        "        y[i + j] = x[i]\n        j += 1"
    ),
    "a while down": (f"for i in {N}:\n    j = 2\n    while j >= 0:\n        y[i + j] = x[i]\n        j -= 1"),
    "a while in steps": (f"for i in {N}:\n    j = 0\n    while 4 > j:\n        y[i + j] = x[i]\n        j += 2"),
    "neighbors read by a while from 0": (
        f"for i in {N}:\n    u = 0.0\n    j = i\n    while j < i + 2:\n        u += y[j]\n        j += 1\n    y[i] = u"
    ),
    "squares of negative numbers": "for i in range(-2, 3):\n    y[i * i] = x[i + 2]",
    "before a break": (
        f"for i in {N}:\n    for j in range(3):\n        y[j] = x[i]\n        if j > 0:\n            break"
    ),
    "before a break by data": (
        f"for i in {N}:\n    for j in range(3):\n        y[j] = x[i]\n        if x[i] > 0.5:\n            break"
    ),
    "a number counted from a remainder": (
        f"for i in {N}:\n    p = i % 4\n    for j in range(3):\n        y[p] = y[p] * 0.5 + x[i]\n        p += 1"
    ),
    "an index that a branch changes": f"for i in {N}:\n    p = i\n    if i > 7:\n        p = 0\n    y[p] = x[i]",
    "half of a number as a float": f"for i in {N}:\n    y[int(i * 0.5)] = x[i]",
    "a root": f"for i in {N}:\n    p = int(ti.sqrt(i * 1.0))\n    y[p] = x[i]",
    "a constant and a sum": f"for i in {N}:\n    y[0] = 1.0\n    y[0] += x[i]",
}
CERTAIN["every other of every other"] = (
    "for i in range(2, x.shape[0] - 2):\n    if i % 2 == 0:\n        y[i] = 0.5 * (y[i - 2] + y[i + 2])"
)
CERTAIN["a clamped place"] = f"for i in {N}:\n    y[ti.min(i + 1, x.shape[0] - 1)] = x[i]"
CERTAIN["a mirrored place"] = f"for i in {N}:\n    y[ti.abs(i - x.shape[0] // 2)] = x[i]"
CERTAIN["squares"] = f"for i in {N}:\n    y[(i * i) % x.shape[0]] = x[i]"
POSSIBLE = {
    "a scatter": f"for i in {N}:\n    t[k[i]] = x[i]",
    "a scatter that multiplies": f"for i in {N}:\n    t[k[i]] *= x[i]",
    "a maximum by if": f"for i in {N}:\n    if x[i] > t[k[i]]:\n        t[k[i]] = x[i]",
    "a running minimum": f"for i in {N}:\n    if x[i] < best[0]:\n        best[0] = x[i]",
    "a running minimum in a local": (
        f"low = 1e9\nfor i in {N}:\n    d = x[i] * x[i]\n    if d < low:\n        low = d\ny[0] = low"
    ),
    "the first one wins": f"for i in {N}:\n    if flag[k[i]] == 0:\n        flag[k[i]] = 1\n        t[k[i]] = x[i]",
    "a flag that chooses": f"for i in {N}:\n    y[i] = ti.select(flag[k[i]] == 0, x[i], 0.0)\n    flag[k[i]] = 1",
    "a flag that ends a loop": (
        f"for i in {N}:\n    for j in range(10):\n        if flag[j] > 0:\n            break\n        y[i] += x[i]\n"
        "    flag[k[i]] = 1"
    ),
    "a gather from what is changed": f"for i in {N}:\n    y[i] = 0.5 * y[k[i]]",
    "guarded by data": f"for i in {N}:\n    if x[i] > 0.5:\n        y[0] = x[i]",
    "rounded positions": f"for i in {N}:\n    t[int(x[i] * 10.0)] = x[i]",
    "a random place": f"for i in {N}:\n    t[int(ti.random() * 10.0)] = x[i]",
    "a place found by a loop": (
        f"for i in {N}:\n    p = 0\n    for j in range(10):\n        if x[i] > 0.1 * j:\n            p = j\n"
        "    t[p] = x[i]"
    ),
    "rows that begin at one place": f"for i in {N}:\n    for j in range(k[i]):\n        t[j] = x[i]",
    "swaps": f"for i in {N}:\n    u = y[i]\n    y[i] = y[k[i]]\n    y[k[i]] = u",
}
POSSIBLE["a segment of five"] = f"for i in {N}:\n    for j in range(k[i], k[i] + 5):\n        t[j] = t[j] * x[i]"
POSSIBLE["a segment of a count"] = f"for i in {N}:\n    for j in range(flag[i]):\n        t[k[i] + j] = x[i]"
POSSIBLE["a segment with both ends"] = f"for i in {N}:\n    for j in range(k[i], flag[i]):\n        t[j] = x[i]"
POSSIBLE["one offset too many"] = (
    "for i in range(x.shape[0] - 1):\n    for j in range(k[i], k[i + 1] + 1):\n        t[j] = x[i]"
)
POSSIBLE["slots that overlap"] = (
    f"for i in {N}:\n    p = ti.atomic_add(count[0], 1)\n    y[p] = x[i]\n    y[p + 1] = x[i]"
)
POSSIBLE["a cursor from 0"] = (
    f"for i in {N}:\n    p = 0\n    for j in range(10):\n        if x[i] > 0.1 * j:\n            t[p] = x[i]\n"
    "            p += 1"
)
CONDITIONAL = {
    "an argument's distance": f"for i in {N}:\n    if i >= s:\n        y[i] = y[i - s] * x[i]",
    "a butterfly that writes where another reads": (
        "for i in range(x.shape[0] // 2):\n    p = (i // s) * 2 * s + i % s\n    y[p] = y[p + 1] * x[i]"
    ),
    "the distance of a layer": "for i in range(12):\n    y[i + s] = y[i] + x[i]",
    "an argument's width": f"for i in {N}:\n    for j in range(c):\n        y[i * s + j] = x[i]",
    "an argument that is 1": f"for i in {N}:\n    if s == 1:\n        y[0] = x[i]",
    "an argument that is 0": f"for i in {N}:\n    y[i * s] = y[i * s] * x[i]",
    "a ring": f"for i in {N}:\n    t[i % t.shape[0]] = x[i]",
}
NONE = {
    "elements of its own": f"for i in {N}:\n    y[i] = y[i] * x[i]",
    "halves": "for i in range(x.shape[0] // 2):\n    y[i] += y[i + x.shape[0] // 2] ** 2",
    "halves in stores": "for i in range(x.shape[0] // 2):\n    y[i] = y[i] + y[i + x.shape[0] // 2] ** 2",
    "halves of the spec": "for i in range(z.shape[0]):\n    y[i] += y[i + z.shape[0]] * y[i + x.shape[0] // 2]",
    "halves of a known length": "for i in range(4):\n    y[i] = x[i]\n    y[i + 4] = x[i] * x[i]",
    "a tree of a known length": "for i in range(4):\n    y[i] = y[i] * y[i + 4]",
    "halves by an argument": "for i in range(s):\n    y[i] += y[i + s]",
    "halves by a guard": f"for i in {N}:\n    if i < s:\n        y[i + s] = y[i] * x[i]",
    "a staggered grid": "for i in range(x.shape[0] // 2 - 1):\n    y[2 * i + 1] += y[2 * i] * y[2 * i + 2]",
    "red and black": f"for i in {N}:\n    if i > 0 and i % 2 == 1:\n        y[i] = y[i - 1] * x[i]",
    "red and black by an argument": (
        "for i, j in a:\n    if (i + j) % 2 == c and i > 0 and j > 0:\n        a[i, j] = a[i - 1, j] + a[i, j - 1]"
    ),
    "red and black by bits": f"for i in {N}:\n    if (i & 1) == 0 and i > 0:\n        y[i] = y[i - 1]",
    "rows": "for i in range(a.shape[0]):\n    for j in range(1, a.shape[1]):\n        a[i, j] += a[i, j - 1]",
    "flat rows": f"for i in {N}:\n    for j in range(t.shape[0]):\n        y[i * t.shape[0] + j] = x[i]",
    "flat rows of a known length": f"for i in {N}:\n    for j in range(4):\n        y[4 * i + j] += y[4 * i + 3 - j]",
    "bits of a number": f"for i in {N}:\n    y[i ^ 1] = x[i]",
    "a shift": f"for i in {N}:\n    y[i << 1] = y[(i << 1) + 1]",
    "slots of a counter": (
        f"for i in {N}:\n    if x[i] > 0.5:\n        s2 = ti.atomic_add(count[0], 1)\n        y[s2] = x[i]"
    ),
    "slots of a counter for each": (
        f"for i in {N}:\n    b = k[i]\n    s2 = ti.atomic_add(flag[b], 1)\n    a[b, s2] = x[i]"
    ),
    "pairs of slots": f"for i in {N}:\n    p = ti.atomic_add(count[0], 2)\n    y[p] = x[i]\n    y[p + 1] = x[i]",
    "slots from the end": f"for i in {N}:\n    y[-ti.atomic_sub(count[0], 1)] = x[i]",
    "slots that were kept": (
        f"for i in {N}:\n    flag[i] = ti.atomic_add(count[0], 1)\nfor i in {N}:\n    y[flag[i]] = x[i]"
    ),
    "a flag that is read back": f"for i in {N}:\n    flag[k[i]] = 1\n    y[i] = x[i] * flag[k[i]]",
    "a flag": f"for i in {N}:\n    if x[i] > 0.5:\n        flag[k[i]] = 1",
    "a flag for all": f"for i in {N}:\n    if x[i] > 0.5:\n        flag[0] = 1",
    "the same value where places are the same": f"for i in {N}:\n    t[k[i]] = best[0] * t.shape[0] + k[i]",
    "the same column for all rows": "for i, j in a:\n    t[j] = x[j] * 2.0",
    "a histogram": f"for i in {N}:\n    flag[k[i]] += 1\nfor i in {N}:\n    y[i] = x[i] / flag[k[i]]",
    "sums": f"for i in {N}:\n    y[0] += x[i]\n    t[k[i]] -= x[i]\n    t[k[i]] += 2.0",
    "a local sum": f"total = 0.0\nfor i in {N}:\n    total += x[i]\ny[0] = total",
    "a local that each gives a value": f"u = 0.0\nfor i in {N}:\n    u = x[i] * 2.0\n    y[i] = u",
    "one iteration": "for _ in range(1):\n    y[0] = y[0] + x[0]",
    "in order": "ti.loop_config(serialize=True)\nfor i in range(1, x.shape[0]):\n    y[i] = y[i - 1] + x[i]",
    "inside a loop": "for _ in range(1):\n    for i in range(1, x.shape[0]):\n        y[i] = y[i - 1] + x[i]",
    "one chosen iteration": f"for i in {N}:\n    if i == k[0]:\n        y[0] = x[i]",
    "a guard for one": f"for i in {N}:\n    if i == 0:\n        y[0] = y[1] + x[1]",
    "transposed halves": (
        "for i, j in a:\n    if i < j:\n        u = a[i, j]\n        a[i, j] = a[j, i]\n        a[j, i] = u"
    ),
    "a clamped neighbor of another array": (
        f"for i in {N}:\n    y[i] = x[ti.max(i - 1, 0)] + x[ti.min(i + 1, x.shape[0] - 1)]"
    ),
    "halves of a length in a local": "n = x.shape[0] // 2\nfor i in range(n):\n    y[i] += y[i + n]",
    "a scatter by rows": f"for i in {N}:\n    a[i, k[i]] = x[i]",
    "a butterfly": (
        "for i in range(x.shape[0] // 2):\n    p = (i // s) * 2 * s + i % s\n    y[p] = x[p]\n    y[p + s] = x[p] * 2.0"
    ),
    "a step of a scan": "for i in range(x.shape[0] // (2 * s)):\n    y[2 * s * i + s] = y[2 * s * i] + x[i]",
    "partners by a bit": f"for i in {N}:\n    p = i ^ (1 << s)\n    if p > i:\n        y[i] = y[p] + x[i]",
    "partners by a set bit": (
        f"for i in {N}:\n    b = 1 << s\n    if (i & b) == 0:\n        j = i | b\n        u = y[i]\n"
        "        y[i] = u + y[j]\n        y[j] = u * y[j]"
    ),
    "a number counted in rows": (
        f"for i in {N}:\n    p = 4 * i\n    for j in range(4):\n        y[p] = y[p] * 0.5 + x[i]\n        p += 1"
    ),
    "a while in rows down": (
        f"for i in {N}:\n    j = 2\n    while j >= 0:\n        y[3 * i + j] = x[i]\n        j -= 1"
    ),
    "a while in rows, the last included": (
        f"for i in {N}:\n    j = 0\n    while j <= 4:\n        y[5 * i + j] = x[i]\n        j += 1"
    ),
    "a while in rows by steps": (
        f"for i in {N}:\n    j = 0\n    while j < 4:\n        y[4 * i + j] = x[i]\n        j += 2"
    ),
    "a while that ends early": (
        f"for i in {N}:\n    j = 0\n    while j < 5:\n        if j >= 2:\n            break\n"
        "        y[2 * i + j] = x[i]\n        j += 1"
    ),
    "a while over those that follow": (
        f"for i in {N}:\n    j = i\n    while j < x.shape[0]:\n        y[i] += x[j]\n        j += 1"
    ),
    "a while in rows": (f"for i in {N}:\n    j = 0\n    while j < 3:\n        y[3 * i + j] = x[i]\n        j += 1"),
    "an index that a branch changes to one's own": (
        f"for i in {N}:\n    p = 2 * i\n    if x[i] > 0.5:\n        p = 2 * i + 1\n    y[p] = x[i]"
    ),
    "a neighbor in one's own row": (
        f"for i in {N}:\n    for j in range(3):\n        y[3 * i + j] = x[i] + (y[3 * i + j - 1] if j > 0 else 0.0)"
    ),
    "a float that is a number": f"for i in {N}:\n    y[int(i * 1.0)] = x[i]",
    "ragged rows": "for i in range(x.shape[0] - 1):\n    for j in range(k[i], k[i + 1]):\n        y[j] = x[i]",
}


@pytest.mark.parametrize("form", CERTAIN)
def test_a_certain_race(lang, form):
    assert [one.verdict.value for one in conflicts_of(lang, CERTAIN[form])][:1] == ["certain"]


@pytest.mark.parametrize("form", POSSIBLE)
def test_a_possible_race(lang, form):
    assert {one.verdict.value for one in conflicts_of(lang, POSSIBLE[form])} == {"possible"}


@pytest.mark.parametrize("form", CONDITIONAL)
def test_a_race_for_some_sizes_or_arguments(lang, form):
    assert {one.verdict.value for one in conflicts_of(lang, CONDITIONAL[form])} == {"conditional"}


@pytest.mark.parametrize("form", NONE)
def test_no_race(lang, form):
    assert conflicts_of(lang, NONE[form]) == []


def test_a_size_is_not_negative(lang):
    """So `j + x.shape[0] + 5` is beyond the five elements that are changed, whatever the size is."""
    kernel = lowered(lang, "for j in range(5):\n    y[j] = y[j + x.shape[0] + 5]\n    t[j] = t[j + s + 5]")
    assert find_disjoint_arrays(kernel, kernel.body[0]) == {"y"}
