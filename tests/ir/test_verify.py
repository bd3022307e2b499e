"""Every rule of the IR, broken on purpose: the verifier must say so."""

from dataclasses import replace

import pytest

from tinsmith.ir import InvalidKernel, nodes, parse_ir, verify, walk

KERNEL = """\
kernel steps
  array x: f32[1]
  array p: f32[1] of 3
  array k: i32[1]
  array y: f32[1]
  cell total: f32[0]
  argument n: i32
  argument v: f32 of 2
  locals f32: acc, t, u, old
  locals i32: at, votes
  locals u1: ok
  parallel for i in 0 .. x.shape[0]:  @3
    acc = 0.0  @4
    for j in 0 .. n:  @5
      at = k[j]  @6
      if at < 0:  @7
        continue  @8
      acc = acc + x[at] * v{1}  @9
    ok = acc > 0.0  @10
    t = select(ok, acc, 0.0)  @11
    if ok:  @12
      y[i] = t  @13
    else:
      y[i] = p[i]{2}  @15
    old = atomic add total[], t  @16
    u = random f32  @17
  for i in 0 .. 4:  @18
    array near: f32[8]  @19
    near[i] = abs(y[i])  @20
    while:  @21
      if y[i] > 1.0:  @22
        break  @23
      y[i] = y[i] * near[0]  @24
"""

SSA = """\
kernel recurrence
  array x: f32[1]
  array y: f32[1]
  locals f32: head, next, last, cell
  locals u1: done
  loop j in 0 .. x.shape[0] [exit = done]:  @3
    carry head = 1.0 then next last last cell cell
    next = head * x[0]  @4
    done = next < 0.1  @5
  y[0] = last  @6
"""

TEXTS = {
    "a local that has no value": ("    acc = 0.0  @4\n", "", "`acc` is read before it is assigned"),
    "a local that one branch alone gives a value": (
        "    ok = acc > 0.0  @10\n",
        "    if acc > 1.0:\n      ok = acc > 0.0\n",
        "`ok` is read before it is assigned",
    ),
    "a local of a loop that may not run": ("    acc = 0.0  @4\n    for j", "    for j", "`acc` is read before"),
    "a condition that is a float": (
        "    if ok:  @12",
        "    if acc:  @12",
        "its condition is a f32; it must be u1",
    ),
    "a selection by a float": ("select(ok, acc, 0.0)", "select(t, acc, 0.0)", "the condition of a selection is f32"),
    "a selection of two types": ("select(ok, acc, 0.0)", "select(ok, acc, 0)", "a selection between f32 and i32"),
    "`break` without a loop": ("  for i in 0 .. 4:", "  break\n  for i in 0 .. 4:", "Break: it is outside all loops"),
    "`continue` without a loop": (
        "  for i in 0 .. 4:",
        ("  continue\n  for i in 0 .. 4:"),
        "Continue: it is outside all",
    ),
    "`break` out of a parallel loop": (
        "    ok = acc",
        "    if n > 3:\n      break\n    ok = acc",
        "contains a `break`",
    ),
    "a parallel loop inside": ("    for j in", "    parallel for j in", "a parallel loop is inside another statement"),
    "an index too many": ("      y[i] = t", "      y[i, 0] = t", "2 indices into `y`, which has rank 1"),
    "an index too few": ("old = atomic add total[]", "old = atomic add y[]", "0 indices into `y`"),
    "an index that is a float": ("      y[i] = t", "      y[acc] = t", "an index of `y` is a f32"),
    "an entry that is not there": ("p[i]{2}", "p[i]{3}", r"entry \(3,\) of `p`"),
    "an entry of a number": ("y[i] = p[i]{2}", "y[i] = y[i]{0}", r"entry \(0,\) of `y`"),
    "a whole vector as a number": ("p[i]{2}", "p[i]", r"entry \(\) of `p`"),
    "an entry of an argument too few": ("v{1}", "v", "argument `v` is"),
    "an axis that is not there": ("x.shape[0]", "x.shape[1]", "axis 1 of `x`, which has rank 1"),
    "an atomic of another type": ("atomic add total[], t", "atomic add total[], n", "a i32 to an element of `total`"),
    "an atomic's result of another type": (
        "    old = atomic",
        "    at = atomic",
        ("is assigned to `at`, which has type i32"),
    ),
    "a random number of another type": ("u = random f32", "at = random f32", "a random f32 is assigned to `at`"),
    "bits of a float": ("acc + x[at]", "acc & x[at]", "`&` of f32 and f32"),
    "a truth that is a float": ("ok = acc > 0.0", "ok = acc > 0.0 and acc", "`and` of u1 and f32"),
    "a sum of another type": ("acc = acc + x[at] * v{1}", "acc = (acc + x[at]):i32", r"`\+` of f32 and f32 is not i32"),
    "a function of integers that is for floats": ("abs(y[i])", "floor(n)", "`floor` of i32"),
    "a number beyond its type": ("    at = k[j]", "    at = 300:u8", "the constant 300 is out of the range of u8"),
    "other bits": ("    at = k[j]", "    at = bits(acc, i64)", "a bit cast of f32 to i64"),
    "a barrier without blocks": (
        "  for i in 0 .. 4:",
        "  barrier\n  for i in 0 .. 4:",
        "it is outside all parallel loops",
    ),
    "an assertion about a number": (
        "    ok = acc",
        "    assert(acc, '')\n    ok = acc",
        "its condition is a f32; it must be u1",
    ),
    "a vote of another type": (
        "    ok = acc",
        "    acc = vote any at\n    ok = acc",
        "the operand and the result of a vote must be i32",
    ),
    "a local array without a loop": (
        "  for i in 0 .. 4:",
        "  array far: f32[3]\n  for i in 0 .. 4:",
        "is declared outside all loops",
    ),
    "vectors that do not a multiple of a loop": (
        "  for i in 0 .. 4:",
        "  for i in 0 .. 6 [vector_width = 4]:",
        "not a multiple of",
    ),
    "a bound that is a float": ("for j in 0 .. n", "for j in 0 .. 2.0", "a bound is a f32"),
    "a local that is an array": (
        "locals f32: acc",
        "locals f32: x, acc",
        "`x` is the name of both a local and an array",
    ),
    "an array that is an argument": (
        "argument n: i32",
        "argument n: i32\n  argument y: f32",
        "`y` is the name of both an array and an",
    ),
    "a cell with dims": ("cell total: f32[0]", "cell total: f32[1]", "cell `total` is not an array of rank 0"),
    "an array of an iteration outside of its loop": (
        "y[i] * near[0]  @24\n",
        "y[i] * near[0]  @24\n  for k in 0 .. 2:\n    y[k] = near[0]\n",
        "`near` is not an array of the kernel",
    ),
    "a loop inside one of the same name": (
        "      at = k[j]",
        "      for i in 0 .. 2:\n        pass\n      at = k[j]",
        "`i` is already the variable of an enclosing loop",
    ),
    "a loop with one name twice": (
        "for i in 0 .. 4:",
        "for i, i in 0 .. 4, 0 .. 2:",
        "`i` is already the variable of an enclosing loop",
    ),
    "a loop in SSA form": (
        "  for i in 0 .. 4:",
        "  loop j in 0 .. 4:\n    pass\n  for i in 0 .. 4:",
        "only valid in SSA form",
    ),
}


def test_the_kernels_are_valid():
    verify(parse_ir(KERNEL))
    verify(parse_ir(SSA), is_ssa=True)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_breaks_a_rule(name):
    old, new, words = TEXTS[name]
    assert KERNEL.count(old) >= 1
    with pytest.raises(InvalidKernel, match=words):
        verify(parse_ir(KERNEL.replace(old, new, 1)))


SSA_TEXTS = {
    "a local that is given a value twice": ("    done =", "    next = head\n    done =", "assigned twice"),
    "a `for`": (
        "  y[0] = last",
        "  for i in 0 .. 2:\n    y[i] = 0.0\n  y[0] = last",
        "SSA form must not contain a `For`",
    ),
    "a `while`": ("  y[0] = last", "  while:\n    break\n  y[0] = last", "SSA form must not contain a `While`"),
    "a loop without an end": ("loop j in 0 .. x.shape[0] [exit = done]", "loop endlessly", "it never ends"),
    "what is handed on has no value": ("    next = head * x[0]  @4\n", "", "`next` is read before it is assigned"),
    "what is handed on has another type": ("locals u1: done", "locals u1: done, head", "`head` has more than one type"),
    "what is handed on first has another type": ("head = 1.0", "head = 1", "`head` has more than one type"),
    "what holds it in between has another type": (
        "locals u1: done",
        "locals u1: done, cell",
        "`head` has more than one type",
    ),
    "what is handed on is asked for before": ("head = 1.0", "head = last", "`last` is read before it is assigned"),
    "a parallel loop that hands something on": ("  loop", "  parallel loop", "carries locals or has an exit condition"),
}


@pytest.mark.parametrize("name", SSA_TEXTS)
def test_a_text_in_ssa_form_that_breaks_a_rule(name):
    old, new, words = SSA_TEXTS[name]
    assert SSA.count(old) >= 1
    with pytest.raises(InvalidKernel, match=words):
        verify(parse_ir(SSA.replace(old, new, 1)), is_ssa=True)


def change(kind, **fields):
    """Change the first node of a type."""

    def corrupt(kernel):
        seen = []

        def one(node):
            if isinstance(node, kind) and not seen:
                seen.append(node)
                return replace(node, **fields)
            return node

        changed = replace(kernel, body=walk.change_parts(kernel.body, one))
        assert seen
        return changed

    return corrupt


def give_memory(*sizes):
    """Make `x` memory of blocks, of these sizes."""

    def corrupt(kernel):
        arrays = {**kernel.arrays, "x": replace(kernel.arrays["x"], is_of_blocks=True)}
        return replace(kernel, arrays=arrays, block_memory={"x": sizes})

    return corrupt


def decompose(function, *results):
    """Put a decomposition of a matrix of 4 numbers before a kernel."""
    matrix = (nodes.Const(1.0, "f32"),) * 4
    return lambda kernel: replace(kernel, body=(nodes.Decompose(function, matrix, results, "f32"), *kernel.body))


NODES = {
    "a size of block memory that is read from memory": (
        give_memory(nodes.Load("k", (nodes.Const(0, "i32"),), (), "i32")),
        "a size of `x`: it must not read locals or memory",
    ),
    "a size of block memory of an unknown array": (
        give_memory(nodes.Size("gone", 0)),
        "a size of `x`: `gone`, whose size is used, is not an array of the kernel",
    ),
    "a decomposition that there is not": (decompose("lu", "acc"), "`lu` is not a decomposition"),
    "results that a decomposition has not": (decompose("sym_eig", "acc", "t"), "`sym_eig` has 2 results"),
    "an atomic that there is not": (change(nodes.Atomic, operator="nand"), "`nand` is not an atomic operation"),
    "a vote that there is not": (
        lambda kernel: change(nodes.Vote, operator="most")(
            parse_ir(KERNEL.replace("    ok = acc", "    votes = vote any at\n    ok = acc", 1))
        ),
        "`most` is not a vote operator",
    ),
    "a type that there is not": (
        lambda kernel: replace(kernel, locals={**kernel.locals, "at": "i31"}),
        "local `at` has a type that the IR does not have",
    ),
    "an operation that there is not": (change(nodes.Binary, operator="nand"), "`nand` is not a binary operation"),
    "a function that there is not": (change(nodes.Unary, operator="erf"), "`erf` is not a unary operation"),
    "a float that is an integer": (change(nodes.Const, type="f32", value=3), "constant 3 is a int"),
    "a local read in another type": (change(nodes.Local, type="f64"), "is read as f64"),
    "an argument that there is not": (change(nodes.Argument, name="m"), "`m` is not an argument of the kernel"),
    "an element loaded in another type": (change(nodes.Load, type="f64"), "is loaded as f64"),
    "a local that is not declared": (change(nodes.Assign, name="nobody"), "`nobody` is not a local of the kernel"),
    "a store to what is no array": (change(nodes.Store, array="q"), "`q` is not an array of the kernel"),
    "a loop with a name too many": (change(nodes.For, names=("i", "j")), "2 names for 1 ranges"),
    "a block that is a list": (change(nodes.If, body=[]), "a block is a list"),
    "a number in a block": (change(nodes.If, body=(nodes.Const(1, "i32"),)), "expected a statement, got a Const"),
    "a statement in an expression": (
        change(nodes.Assign, value=nodes.Break()),
        "expected an expression, got a Break",
    ),
    "a line that is none": (change(nodes.Store, line=-1), "its line is -1"),
    "an array under another name": (
        lambda kernel: replace(kernel, arrays={**kernel.arrays, "x": nodes.Array("z", "f32", 1)}),
        "array `x` is listed under a name that differs from its own, `z`",
    ),
    "sizes of what blocks have not": (
        lambda kernel: replace(kernel, block_memory={"x": (nodes.Const(4, "i32"),)}),
        "`x` has the sizes of block memory, but is not block memory",
    ),
    "an array that became a local": (
        lambda kernel: replace(kernel, arrays={name: one for name, one in kernel.arrays.items() if name != "k"}),
        "`k` is not an array of the kernel",
    ),
    "a matrix that is not square": (
        lambda kernel: replace(
            kernel, body=(nodes.Decompose("svd", (nodes.Const(1.0, "f32"),) * 3, ("acc",), "f32"), *kernel.body)
        ),
        "a decomposition of a matrix of 3 numbers: it must be square, with 2 to 6 rows",
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_that_breaks_a_rule(name):
    corrupt, words = NODES[name]
    with pytest.raises(InvalidKernel, match=words):
        verify(corrupt(parse_ir(KERNEL)))


def test_all_faults_are_named():
    with pytest.raises(InvalidKernel) as caught:
        verify(change(nodes.Atomic, operator="nand")(parse_ir(KERNEL.replace("    acc = 0.0  @4\n", ""))))
    assert "kernel `steps`" in str(caught.value)
    assert "line 9, Assign: `acc` is read" in str(caught.value)
    assert "line 16, Atomic: `nand` is not an atomic operation" in str(caught.value)
