"""Blocks of threads on CPUs: memory that they share and barriers, run in order; values and gradients of each form."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import tinsmith as ts
from tinsmith import GradientError, KernelError

SIZE = 8


class Row(NamedTuple):
    """An op, the same in torch, and inputs for it by a length; `keywords` of a call by the length."""

    op: Any
    twin: Callable[..., torch.Tensor]
    inputs: Callable[[int], list[torch.Tensor]]
    keywords: Callable[[int], dict[str, int]] = lambda _: {}


def _arrays(lang):
    return lang.types.ndarray(dtype=lang.f64, ndim=1), lang.types.ndarray(dtype=lang.f64, ndim=2)


def _one(n):
    return [torch.rand(n, dtype=torch.float64) + 0.5]


def _block_count(n):
    return {"m": -(-n // SIZE)}


def tree_sum(lang):
    """Build a sum by halves, with a barrier in a loop whose trip count is the same for all threads."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[m]")
    @lang.kernel
    def tree_sum(x: vector, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((SIZE,), lang.f64)
            lane = i % SIZE
            pad[lane] = x[i] * x[i]
            lang.simt.block.sync()
            s = SIZE // 2
            while s > 0:
                if lane < s and i + s < x.shape[0]:
                    pad[lane] += pad[lane + s]
                lang.simt.block.sync()
                s //= 2
            if lane == 0:
                y[i // SIZE] = pad[0]

    def twin(x):
        return torch.stack([(part * part).sum() for part in x.split(SIZE)])

    return Row(tree_sum, twin, _one, _block_count)


def prefix_sum(lang):
    """Build a prefix sum that keeps a local across two barriers."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def prefix_sum(x: vector, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((SIZE,), lang.f64)
            lane = i % SIZE
            pad[lane] = lang.sin(x[i])
            lang.simt.block.sync()
            stride = 1
            while stride < SIZE:
                more = 0.0
                if lane >= stride:
                    more = pad[lane - stride]
                lang.simt.block.sync()
                pad[lane] += more
                lang.simt.block.sync()
                stride *= 2
            y[i] = pad[lane] * x[i]

    def twin(x):
        return torch.cat([part.sin().cumsum(0) * part for part in x.split(SIZE)])

    return Row(prefix_sum, twin, _one)


def tiled_product(lang):
    """Build a tiled matrix product: four loop variables, two of them the block's, and a barrier in a loop."""
    _, matrix = _arrays(lang)
    side = 4

    @ts.op("a[m, k], b[k, n] -> c[m, n]")
    @lang.kernel
    def tiled_product(a: matrix, b: matrix, c: matrix):
        lang.loop_config(block_dim=side * side)
        for row, column, i, j in lang.ndrange(a.shape[0] // side, b.shape[1] // side, side, side):
            left = lang.simt.block.SharedArray((side, side), lang.f64)
            right = lang.simt.block.SharedArray((side, side), lang.f64)
            total = 0.0
            for tile in range(a.shape[1] // side):
                left[i, j] = a[row * side + i, tile * side + j]
                right[i, j] = b[tile * side + i, column * side + j]
                lang.simt.block.sync()
                for k in range(side):
                    total += left[i, k] * right[k, j]
                lang.simt.block.sync()
            c[row * side + i, column * side + j] = total

    def inputs(n):
        return [torch.rand(4 * n, 8, dtype=torch.float64), torch.rand(8, 12, dtype=torch.float64)]

    return Row(tiled_product, torch.matmul, inputs)


def splats(lang):  # noqa: C901  # as such kernels are
    """Build a kernel whose pixels of a tile load its splats together, then each blends until it is opaque."""
    vector, matrix = _arrays(lang)
    integers = lang.types.ndarray(dtype=lang.i32, ndim=1)
    vec3 = lang.types.vector(3, lang.f64)
    tile, per_row = SIZE, 4

    @ts.op("start[t1]: i32, order[e]: i32, place[s, 2], color[s, 3], opacity[s] -> image[p, 3]")
    @lang.kernel
    def splats(start: integers, order: integers, place: matrix, color: matrix, opacity: vector, image: matrix):
        lang.loop_config(block_dim=tile)
        for pixel in range((image.shape[0] + tile - 1) // tile * tile):
            tile_id = pixel // tile
            thread = pixel % tile
            u = lang.cast(pixel % per_row, lang.f64) * 0.3
            v = lang.cast(pixel // per_row, lang.f64) * 0.3
            first, last = start[tile_id], start[tile_id + 1]
            places = lang.simt.block.SharedArray((2, tile), lang.f64)
            colors = lang.simt.block.SharedArray((tile,), vec3)
            opacities = lang.simt.block.SharedArray((tile,), dtype=lang.f64)
            left = 1.0
            seen = lang.Vector([0.0, 0.0, 0.0])
            is_full = False
            batches = (last - first + tile - 1) // tile
            for batch in range(batches):
                if lang.simt.block.sync_all_nonzero(lang.cast(is_full, lang.i32)):
                    break
                entry = first + batch * tile + thread
                if entry < last:
                    splat = order[entry]
                    for axis in lang.static(range(2)):
                        places[axis, thread] = place[splat, axis]
                    colors[thread] = lang.Vector([color[splat, 0], color[splat, 1], color[splat, 2]])
                    opacities[thread] = opacity[splat]
                lang.simt.block.sync()
                count = lang.min(tile, last - first - batch * tile)
                for k in range(count):
                    if is_full:
                        break
                    x, y = places[0, k] - u, places[1, k] - v
                    alpha = opacities[k] * lang.exp(-(x * x + y * y))
                    if alpha < 0.05:
                        continue
                    rest = left * (1.0 - alpha)
                    if rest < 0.2:
                        is_full = True
                        continue
                    seen += left * alpha * colors[k]
                    left = rest
            if pixel < image.shape[0]:
                for channel in lang.static(range(3)):
                    image[pixel, channel] = seen[channel] + left * 0.1

    def inputs(n):
        pixels = 2 * n + 3
        tiles = -(-pixels // tile)
        counts = torch.arange(tiles) * 5 % 23 + 1
        start = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]).int()
        entries, many = int(start[-1]), 30
        order = torch.randint(0, many, (entries,)).int()
        floats = [torch.rand(many, 2) * 2, torch.rand(many, 3), torch.rand(many) * 0.7 + 0.2]
        return [start, order, *(one.double() for one in floats)]

    def twin(start, order, place, color, opacity, p):
        rows = []
        for pixel in range(p):
            at = torch.tensor([pixel % per_row, pixel // per_row], dtype=torch.float64) * 0.3
            left, seen = torch.ones((), dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
            for entry in range(int(start[pixel // tile]), int(start[pixel // tile + 1])):
                splat = int(order[entry])
                alpha = opacity[splat] * torch.exp(-((place[splat] - at) ** 2).sum())
                if alpha < 0.05:
                    continue
                rest = left * (1.0 - alpha)
                if rest < 0.2:
                    break
                seen, left = seen + left * alpha * color[splat], rest
            rows.append(seen + left * 0.1)
        return torch.stack(rows)

    return Row(splats, twin, inputs, lambda n: {"p": 2 * n + 3})


def moments(lang):
    """Build a kernel with atomics on shared arrays, sums by lane 0, its broadcast, and a range from 2."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def moments(x: vector, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range(2, x.shape[0]):
            sums = lang.simt.block.SharedArray((2,), lang.f64)
            lane = lang.simt.block.thread_idx()
            if lane == 0:
                sums[0] = 0.0
                sums[1] = 0.0
            lang.simt.block.sync()
            lang.atomic_add(sums[0], x[i])
            sums[1] += x[i] * x[i]
            lang.simt.block.sync()
            y[i] = x[i] * sums[0] + sums[1]

    def twin(x):
        parts = x[2:].split(SIZE) if len(x) > 2 else ()
        return torch.cat([x.new_zeros(2), *(part * part.sum() + (part * part).sum() for part in parts)])

    return Row(moments, twin, _one)


def in_functions(lang):
    """Build a kernel with barriers in a function, under a branch of an argument, and in a loop that may end early."""
    vector, _ = _arrays(lang)

    @lang.func
    def total(pad: lang.template(), lane, value):
        pad[lane] = value
        lang.simt.block.sync()
        pad_sum = 0.0
        for k in range(SIZE):
            pad_sum += pad[k]
        lang.simt.block.sync()
        return pad_sum

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def in_functions(x: vector, often: lang.i32, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0] // SIZE * SIZE):
            pad = lang.simt.block.SharedArray(SIZE, lang.f64)
            lane = i % SIZE
            base = i - lane
            value = x[i]
            for k in range(often):
                if base + k * SIZE >= 2 * SIZE:
                    break
                value = 0.5 * value + 0.1 * total(pad, lane, value * value)
            if often > 2:
                value = value + total(pad, lane, lang.sin(value))
            y[i] = value

    def twin(x, often):
        parts = []
        for number, part in enumerate(x[: len(x) // SIZE * SIZE].split(SIZE) if len(x) >= SIZE else ()):
            for k in range(often):
                if number + k >= 2:
                    break
                part = 0.5 * part + 0.1 * (part * part).sum()
            parts.append(part + part.sin().sum() if often > 2 else part)
        return torch.cat([*parts, x[len(x) // SIZE * SIZE :] * 0.0])

    return Row(in_functions, twin, _one, lambda n: {"often": 3 if n > 3 else 1})


def queue(lang):
    """Build a kernel whose blocks take pieces of work, and slots that an atomic on shared memory hands out."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def queue(x: vector, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range((x.shape[0] + 3 * SIZE - 1) // (3 * SIZE) * SIZE):
            shared = lang.simt.block.SharedArray((2,), lang.i32)
            kept = lang.simt.block.SharedArray((3 * SIZE,), lang.f64)
            block, lane = i // SIZE, i % SIZE
            begin = block * 3 * SIZE
            end = lang.min(begin + 3 * SIZE, x.shape[0])
            if lane == 0:
                shared[0] = begin
                shared[1] = 0
            lang.simt.block.sync()
            is_going = True
            while is_going:
                here = shared[0]
                lang.simt.block.sync()
                if here >= end:
                    is_going = False
                else:
                    if here + lane < end and x[here + lane] > 1.0:
                        place = lang.atomic_add(shared[1], 1)
                        kept[place] = x[here + lane] * 2.0
                    if lane == 0:
                        shared[0] = here + SIZE
                    lang.simt.block.sync()
            for k in range((3 * SIZE + SIZE - 1 - lane) // SIZE):
                place = k * SIZE + lane
                if place < shared[1]:
                    y[begin + place] = kept[place] * kept[0]

    def twin(x):
        parts = []
        for part in x.split(3 * SIZE):
            kept = part[part > 1.0] * 2.0
            parts += [kept * kept[0] if len(kept) else kept, part.new_zeros(len(part) - len(kept))]
        return torch.cat(parts)

    return Row(queue, twin, _one)


def votes(lang):
    """Build a kernel with counting barriers, two loops, and `continue` after the last barrier."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def votes(x: vector, y: vector):
        for i in x:
            y[i] = x[i] * x[i]
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0]):
            is_large = x[i] > 1.0
            count = lang.simt.block.sync_count_nonzero(lang.cast(is_large, lang.i32))
            some = lang.simt.block.sync_any_nonzero(lang.cast(x[i] > 1.4, lang.i32))
            scale = 1.0
            if some:
                scale = 3.0
                lang.simt.block.sync()
            if is_large:
                continue
            y[i] += scale * lang.cast(count, lang.f64) * x[i]

    def twin(x):
        parts = []
        for part in x.split(SIZE):
            scale = 3.0 if (part > 1.4).any() else 1.0
            parts.append(part * part + torch.where(part > 1.0, 0.0, scale * (part > 1.0).sum() * part))
        return torch.cat(parts)

    return Row(votes, twin, _one)


def default_size(lang):
    """Build a kernel with the default blocks of 128 iterations, and two loop variables that span blocks."""
    _, matrix = _arrays(lang)

    @ts.op("x[n, k] -> y[n, k]")
    @lang.kernel
    def default_size(x: matrix, y: matrix):
        for i, j in lang.ndrange(x.shape[0], x.shape[1]):
            pad = lang.simt.block.SharedArray((128,), lang.f64)
            lane = (i * x.shape[1] + j) % 128
            pad[lane] = x[i, j]
            lang.simt.block.sync()
            y[i, j] = pad[lane] * pad[0]

    def twin(x):
        return torch.cat([part * part[0] for part in x.reshape(-1).split(128)]).reshape(x.shape)

    return Row(default_size, twin, lambda n: [torch.rand(n, 13, dtype=torch.float64)])


ROWS = {
    row.__name__: row
    for row in (
        tree_sum,
        prefix_sum,
        tiled_product,
        splats,
        moments,
        in_functions,
        queue,
        votes,
        default_size,
    )
}


def _for_twin(twin, keywords):
    """Select the keywords that a twin takes; others are sizes, which it reads from its inputs."""
    code = getattr(twin, "__code__", None)
    return {name: value for name, value in keywords.items() if code is not None and name in code.co_varnames}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(lang64, name):
    """Also where the last block is not full."""
    torch.manual_seed(0)
    row = ROWS[name](lang64)
    for n in (SIZE, 3 * SIZE, 3 * SIZE + 5, 3):
        inputs = [one.requires_grad_(one.is_floating_point()) for one in row.inputs(n)]
        leaves = [one for one in inputs if one.requires_grad]
        y = row.op(*inputs, **row.keywords(n))
        wanted = row.twin(*inputs, **_for_twin(row.twin, row.keywords(n)))
        torch.testing.assert_close(y, wanted)
        weights = torch.rand_like(wanted)
        pairs = [torch.autograd.grad(result, leaves, weights) for result in (y, wanted)]
        torch.testing.assert_close(*pairs)


def _derivatives(op, twin, x, direction):
    """Return each way of using an op that needs another form of its kernels, and the same in torch."""
    batch = torch.stack([x, x.flip(0), 1.5 * x])

    def squared(function):
        return lambda one: (function(one) ** 2).sum()

    def compiled(function):
        return torch.compile(function, fullgraph=True, backend="aot_eager")

    yield "jvp", *(torch.func.jvp(one, (x,), (direction,))[1] for one in (op, twin))
    yield "vmap", torch.vmap(op)(batch), torch.stack([twin(one) for one in batch])
    yield "vmap of grad", *(torch.vmap(torch.func.grad(squared(one)))(batch) for one in (op, twin))
    yield "hessian", *(torch.func.hessian(squared(one))(x) for one in (op, twin))
    yield "compile", compiled(op)(x), twin(x)
    half = op(x.bfloat16())
    yield "bfloat16", half, twin(x.bfloat16().float()).bfloat16()


def _prefix(lang, float_type):
    array = lang.types.ndarray(dtype=float_type, ndim=1)

    @lang.kernel
    def prefix(x: array, y: array):
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((SIZE,), float_type)
            lane = i % SIZE
            own = lang.sin(x[i])
            pad[lane] = own
            lang.simt.block.sync()
            total = 0.0
            for k in range(lane + 1):
                total += pad[k]
            y[i] = total * own

    return prefix


def _prefix_twin(x):
    return torch.cat([part.sin().cumsum(0) * part.sin() for part in x.split(SIZE)])


def test_derivatives_batches_and_half_precision(lang):
    op = ts.op("x[n] -> y[n]")(_prefix(lang, lang.f32))
    torch.manual_seed(0)
    x, direction = torch.rand(2 * SIZE + 5), torch.rand(2 * SIZE + 5)
    for name, actual, wanted in _derivatives(op, _prefix_twin, x, direction):
        torch.testing.assert_close(
            actual, wanted, msg=lambda words, name=name: f"{name}: {words}", rtol=1e-3, atol=1e-3
        )


def test_batch_dims(lang64):
    op = ts.op("x[*b, n] -> y[*b, n]")(_prefix(lang64, lang64.f64))
    x = torch.rand(2, 3, SIZE + 3, dtype=torch.float64, requires_grad=True)
    y, wanted = op(x), torch.stack([_prefix_twin(one) for one in x.reshape(6, -1)]).reshape(x.shape)
    torch.testing.assert_close(y, wanted)
    pairs = [torch.autograd.grad((result**2).sum(), x)[0] for result in (y, wanted)]
    torch.testing.assert_close(*pairs)


def test_oracle_and_check_follow_blocks(lang64):
    op = ts.op("x[n] -> y[n]")(_prefix(lang64, lang64.f64))
    x = torch.rand(SIZE + 1, dtype=torch.float64)
    weights = torch.rand(SIZE + 1, dtype=torch.float64)
    answer = ts.oracle(op, x, cotangents=weights)
    torch.testing.assert_close(answer.outputs["y"], _prefix_twin(x))
    torch.testing.assert_close(answer.gradients["x"], torch.func.vjp(_prefix_twin, x)[1](weights)[0])
    assert ts.gradcheck(op, x).ok
    assert not [one for one in op.lint() if "`pad`" in one.message]  # memory, and no local that engines forget


def test_kernels_of_a_chain_have_memory_of_their_own(lang64):
    """Both call it `pad`, of other sizes and ranks."""
    array = lang64.types.ndarray(dtype=lang64.f64, ndim=1)

    @lang64.kernel
    def scaled(y: array, z: array):
        lang64.loop_config(block_dim=4)
        for i in range(y.shape[0]):
            pad = lang64.simt.block.SharedArray((4, 2), lang64.f64)
            pad[i % 4, 1] = y[i]
            lang64.simt.block.sync()
            z[i] = pad[0, 1] * y[i]

    op = ts.chain("x[n] -> z[n]", [_prefix(lang64, lang64.f64), scaled], scratch="y[n]")
    x = torch.rand(SIZE + 3, dtype=torch.float64, requires_grad=True)
    outcome, wanted = op(x), torch.cat([part * part[0] for part in _prefix_twin(x).split(4)])
    torch.testing.assert_close(outcome, wanted)
    pairs = [torch.autograd.grad((result**2).sum(), x)[0] for result in (outcome, wanted)]
    torch.testing.assert_close(*pairs)


@pytest.mark.parametrize("on_tensors", [True, False])
def test_layers_launch_one_kernel_with_several_lengths(lang, on_tensors):
    """Its memory is as large as the longest launch needs, whichever comes first."""
    lengths = 5, 2 * SIZE + 5, 13
    held, given = (lang.field(lang.f32, shape=max(lengths), needs_grad=True) for _ in range(2))

    @lang.data_oriented
    class Layer:
        @lang.kernel
        def forward(self, n: lang.i32):
            lang.loop_config(block_dim=SIZE)
            for i in range(n):
                pad = lang.simt.block.SharedArray(SIZE, lang.f32)
                pad[i % SIZE] = held[i]
                lang.simt.block.sync()
                given[i] += pad[0] * held[i]

    layer = ts.Tin(Layer(), "cpu", on_tensors=on_tensors)
    for length in lengths:
        layer.register_kernel("forward", length, kernel_name=f"forward_{length}")
    layer.register_input_field(held, "held").register_output_field(given, "given").finish()
    x = torch.rand(max(lengths), requires_grad=True)
    parts = [[*(part * part[0] for part in x[:length].split(SIZE)), x[length:] * 0.0] for length in lengths]
    y, wanted = layer(x), sum(torch.cat(one) for one in parts)
    torch.testing.assert_close(y, wanted)
    pairs = [torch.autograd.grad((result**2).sum(), x)[0] for result in (y, wanted)]
    torch.testing.assert_close(*pairs)


def test_size_of_blocks_by_template_and_range_by_arguments(lang64):
    array = lang64.types.ndarray(dtype=lang64.f64, ndim=1)

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(x: array, size: lang64.template(), first: lang64.i32, end: lang64.i32, y: array):
        lang64.loop_config(block_dim=size)
        for i in range(first, end):
            pad = lang64.simt.block.SharedArray((size,), lang64.f64)
            pad[lang64.simt.block.thread_idx()] = x[i]
            lang64.simt.block.sync()
            y[i] = pad[0] * x[i]

    for size, first, end in ((4, 0, 21), (8, 3, 20), (4, 2, 2), (3, 5, 1)):
        x = torch.rand(21, dtype=torch.float64, requires_grad=True)
        parts = [part * part[0] for part in x[first:end].split(size) if len(part)]
        wanted = torch.cat([x[:first] * 0.0, *parts, x[max(first, end) :] * 0.0])
        outcome = scaled(x, size, first, end)
        torch.testing.assert_close(outcome, wanted)
        pairs = [torch.autograd.grad((result**2).sum(), x)[0] for result in (outcome, wanted)]
        torch.testing.assert_close(*pairs)


# Refusals ---------------------------------------------------------------------------------------

ALIKE = "Rewrite that line so that all iterations of a block reach the same `sync()` the same number of times"
INTO_A_LOOP = "Move it into a parallel loop at the kernel's top level"


def under_an_if(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            if x[i] > 0.5:
                lang.simt.block.sync()  # here
            y[i] = x[i]

    return kernel, "`sync()` under the `if`", ALIKE


def in_a_loop(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            n = 2
            if x[i] > 0.3:
                n = 3
            for _ in range(n):
                lang.simt.block.sync()  # here
            y[i] = x[i]

    return kernel, "the same number of times: `n` differs between them", ALIKE


def in_a_while(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            count = i % 128 + 1
            k = 0
            while k < count:  # here
                lang.simt.block.sync()
                k += 1
            y[i] = x[i]

    return kernel, "`break` before a `sync()`", ALIKE


def behind_continue(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            if x[i] < 0.5:
                continue  # here
            lang.simt.block.sync()
            y[i] = x[i]

    return kernel, "`continue` before a `sync()`", ALIKE


def read_too_early(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            shared = lang.simt.block.SharedArray((1,), lang.i32)
            if i % 128 == 0:
                shared[0] = 3
            n = shared[0]  # here
            for _ in range(n):
                lang.simt.block.sync()
            y[i] = x[i]

    return (
        kernel,
        "`shared`, which decides whether a `sync()` runs, read while other iterations may store to it",
        "Put a `sync()` before that line",
    )


def read_too_early_of_a_name_with_a_number(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            tile_2 = lang.simt.block.SharedArray((1,), lang.i32)
            if i % 128 == 0:
                tile_2[0] = 3
            n = tile_2[0]  # here
            for _ in range(n):
                lang.simt.block.sync()
            y[i] = x[i]

    return (
        kernel,
        "`tile_2`, which decides whether a `sync()` runs, read while other iterations may store to it",
        "Put a `sync()` before that line",
    )


def read_too_early_in_a_second_loop(lang, array):
    """Build a kernel with two arrays and two locals of one name; the refusal uses the source's names."""

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            tile = lang.simt.block.SharedArray((1,), lang.i32)
            tile[0] = 3
            lang.simt.block.sync()
            y[i] = tile[0]
        for i in range(x.shape[0]):
            tile = lang.simt.block.SharedArray((1,), lang.i32)
            if i % 128 == 0:
                tile[0] = 3
            n = tile[0]  # here
            for _ in range(n):
                lang.simt.block.sync()
            y[i] = x[i]

    return (
        kernel,
        "`tile`, which decides whether a `sync()` runs, read while other iterations may store to it",
        "Put a `sync()` before that line",
    )


def in_a_second_loop(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            n_2 = 2
            y[i] = n_2
        for i in range(x.shape[0]):
            n_2 = 2
            if x[i] > 0.3:
                n_2 = 3
            for _ in range(n_2):
                lang.simt.block.sync()  # here
            y[i] = x[i]

    return kernel, "the same number of times: `n_2` differs between them", ALIKE


def outside_a_loop(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        pad = lang.simt.block.SharedArray((8,), lang.f32)  # here
        for i in range(x.shape[0]):
            y[i] = x[i] + pad[0]

    return kernel, "`SharedArray` outside a parallel loop", INTO_A_LOOP


def in_a_serial_loop(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            lang.simt.block.sync()  # here
            y[i] = x[i]

    return kernel, "`sync()` outside a parallel loop", INTO_A_LOOP


def of_unknown_length(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(lang.cast(x[0], lang.i32)):  # here
            lang.simt.block.sync()
            y[i] = x[i]

    return (
        kernel,
        "with bounds that are computed at run time",
        "Compute the bounds of the loop from sizes and arguments",
    )


def of_a_shape_at_run_time(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((4, x.shape[0]), lang.f32)  # here
            y[i] = x[i] + pad[0, 0]

    return kernel, "a `SharedArray` whose shape is computed at run time", "Pass sizes that are known"


def of_an_empty_shape(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((4, 0), lang.f32)  # here
            y[i] = x[i] + pad[0, 0]

    return kernel, "a `SharedArray` of shape (4, 0)", "Pass a positive integer, or a tuple of positive integers"


REFUSED = (
    under_an_if,
    in_a_loop,
    in_a_while,
    behind_continue,
    read_too_early,
    read_too_early_of_a_name_with_a_number,
    read_too_early_in_a_second_loop,
    in_a_second_loop,
    outside_a_loop,
    in_a_serial_loop,
    of_unknown_length,
    of_a_shape_at_run_time,
    of_an_empty_shape,
)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.__name__)
def test_barriers_in_divergent_code_are_refused_with_their_line(lang, engine, row):
    kernel, words, remedy = row(lang, lang.types.ndarray(dtype=lang.f32, ndim=1))
    op = ts.op("x[n] -> y[n]")(kernel)
    lines, first = inspect.getsourcelines(row)
    line = first + next(number for number, text in enumerate(lines) if text.rstrip().endswith("# here"))
    for x in (torch.rand(8), torch.rand(8, requires_grad=True)):
        with pytest.raises(
            KernelError, match=f"uses blocks of threads, which {engine} does not support on CPUs"
        ) as caught:
            op(x)
        assert words in str(caught.value) and f"test_blocks.py:{line}" in str(caught.value)
        assert f"\n{remedy}" in str(caught.value) and "Or start the engine on a GPU." in str(caught.value)


@pytest.mark.compiled_engine
def test_gradients_that_the_engine_would_run_are_refused(lang, engine):
    """An engine's own reverse mode, and a gradient written by hand in blocks: Taichi ends the process on some."""
    array = lang.types.ndarray(dtype=lang.f32, ndim=1)
    op = ts.op("x[n] -> y[n]", adjoint="engine")(_prefix(lang, lang.f32))
    x = torch.rand(SIZE + 1)
    torch.testing.assert_close(op(x), _prefix_twin(x))
    with pytest.raises(GradientError, match=f"{engine}'s reverse mode cannot be used for a kernel with blocks"):
        op(x.requires_grad_())

    @lang.kernel
    def pull(grad_y: array, grad_x: array):
        for i in range(grad_y.shape[0]):
            pad = lang.simt.block.SharedArray((128,), lang.f32)
            pad[i % 128] = grad_y[i]
            grad_x[i] = pad[i % 128]

    by_hand = ts.op("x[n] -> y[n]", backward=pull)(_prefix(lang, lang.f32))
    torch.testing.assert_close(by_hand(x.detach()), _prefix_twin(x.detach()))
    with pytest.raises(KernelError, match=r"`pull` .* uses blocks of threads"):
        by_hand(x).sum().backward()
