"""Narrow networks: each lane of a machine vector computes another sample.

A vector of four neurons would leave most of a machine vector empty. Here a weight is one number, multiplied by a
vector of samples. All layers are unrolled, so that everything is kept in registers or on the stack: computing
addresses in an engine's array costs more than the arithmetic of a narrow layer. The gradient of a parameter is
accumulated in lanes while a network's samples are processed, and the lanes are summed once at the end.

The lists in these functions exist at compile time: they are lists of variables that hold a vector each.
"""

from types import ModuleType
from typing import Any

from .._activations import build_activation
from .._element_losses import build_vector_loss
from ._shape import NetworkShape
from ._total import build_total


def build_forward(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the function that computes the outputs of the samples `begin` to `last`, of network `c`."""
    lanes, n_in, n_out = shape.lanes, shape.n_in, shape.n_out
    samples, read, _ = _build_tile_samples(lang, shape)
    outputs_of = _build_forward_from(lang, shape, 0)

    @lang.func
    def forward(
        x: lang.template(),
        params: lang.template(),
        _work: lang.template(),
        y: lang.template(),
        _task,
        c,
        begin,
        last,
    ):
        for tile in range((last - begin + lanes) // lanes):
            o = samples(begin + lanes * tile, last)
            out = outputs_of(params, c, read(x, o, n_in))
            for m in lang.static(range(lanes)):
                for j in lang.static(range(n_out)):
                    y[o[m], j] = out[j][m]

    return forward


def build_backward(lang: ModuleType, shape: NetworkShape, *, of_inputs: bool) -> Any:
    """Build the function that computes the gradients of samples `begin` to `last`.

    `grad_x` is used only if `of_inputs`.
    """
    lanes, n_in, n_out = shape.lanes, shape.n_in, shape.n_out
    samples, read, where_there = _build_tile_samples(lang, shape)
    nothing, store = _build_gradient_sums(lang, shape)
    _, out_slope = build_activation(lang, shape.output_activation, lanes, shape.dtype)

    @lang.func
    def turn(totals: lang.template(), grad_y: lang.template()):
        return [grad_y[j] * out_slope(totals[j]) for j in lang.static(range(n_out))]

    there_and_back = _build_forward_and_backward(lang, shape, turn, 0, of_inputs=of_inputs)

    @lang.func
    def backward(
        x: lang.template(),
        params: lang.template(),
        work: lang.template(),
        grad_y: lang.template(),
        grad_x: lang.template(),
        grad_params: lang.template(),
        task,
        c,
        begin,
        last,
    ):
        sums = nothing()
        for tile in range((last - begin + lanes) // lanes):
            s = begin + lanes * tile
            o = samples(s, last)
            incoming = [where_there(s, last, g) for g in lang.static(read(grad_y, o, n_out))]
            grads = there_and_back(params, c, read(x, o, n_in), incoming, sums)
            if lang.static(of_inputs):
                for m in lang.static(range(lanes - 1, -1, -1)):  # so that the last sample is stored after its copies
                    for k in lang.static(range(n_in)):
                        grad_x[o[m], k] = grads[k][m]
        store(sums, work, grad_params, task, c)

    return backward


def build_learning(lang: ModuleType, shape: NetworkShape, loss: str) -> Any:
    """Build the function that computes a network's loss, the mean over samples and outputs, and its gradient."""
    lanes, n_in, n_out = shape.lanes, shape.n_in, shape.n_out
    real = getattr(lang, shape.dtype)
    vector = lang.types.vector(lanes, real)
    samples, read, where_there = _build_tile_samples(lang, shape)
    nothing, store = _build_gradient_sums(lang, shape)
    out, out_slope = build_activation(lang, shape.output_activation, lanes, shape.dtype)
    loss_value, loss_slope = build_vector_loss(lang, loss, lanes, shape.dtype)
    sum_of = build_total(lang, lanes, shape.dtype)

    @lang.func
    def turn(totals: lang.template(), given: lang.template()):
        """Return the gradients of the outputs' sums.

        `given` holds the targets, the weight of a sample, and the accumulated losses.
        """
        p = [out(total) for total in lang.static(totals)]
        for j in lang.static(range(n_out)):
            given[n_out + 1] += given[n_out] * loss_value(p[j], given[j])
        slopes = [loss_slope(p[j], given[j]) * out_slope(totals[j]) for j in lang.static(range(n_out))]
        return [given[n_out] * slope for slope in lang.static(slopes)]

    there_and_back = _build_forward_and_backward(lang, shape, turn, 0, of_inputs=False)

    @lang.func
    def learning(
        x: lang.template(),
        target: lang.template(),
        params: lang.template(),
        work: lang.template(),
        slopes: lang.template(),
        task,
        c,
        begin,
        last,
    ):
        part = vector(real(1.0) / lang.cast(lang.max(last - begin + 1, 1) * n_out, real))
        sums, loss = nothing(), vector(0.0)
        for tile in range((last - begin + lanes) // lanes):
            s = begin + lanes * tile
            o = samples(s, last)
            given = read(target, o, n_out) + [where_there(s, last, part), vector(0.0)]
            there_and_back(params, c, read(x, o, n_in), given, sums)
            loss += given[n_out + 1]
        store(sums, work, slopes, task, c)
        return sum_of(loss)

    return learning


def _build_tile_samples(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any, Any]:
    """Build the functions of a tile's samples: their indices, their numbers as vectors, and a mask for padding."""
    lanes = shape.lanes
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))
    places = tuple(range(lanes))

    @lang.func
    def samples(s, last):
        """Return the indices of a tile's samples. The last one is repeated to fill the tile."""
        return [lang.min(s + m, last) for m in lang.static(range(lanes))]

    @lang.func
    def read(numbers: lang.template(), o: lang.template(), count: lang.template()):
        vectors = [vector(0.0) for _ in lang.static(range(count))]
        for m in lang.static(range(lanes)):
            for k in lang.static(range(count)):
                vectors[k][m] = numbers[o[m], k]
        return vectors

    @lang.func
    def where_there(s, last, numbers):
        return lang.select(vector(*places) <= vector(last - s), numbers, vector(0.0))

    return samples, read, where_there


def _build_gradient_sums(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any]:
    """Build `nothing`, which makes a zero vector for each parameter, and `store`, which writes the lanes' sums to an
    array.
    """
    rows, width, lanes, space = shape.rows, shape.width, shape.lanes, shape.space
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))
    sum_of = build_total(lang, lanes, shape.dtype)

    @lang.func
    def nothing():
        return [vector(0.0) for _ in lang.static(range(rows)) for _ in lang.static(range(width))]

    @lang.func
    def store(sums: lang.template(), work: lang.template(), into: lang.template(), task, c):
        for r in lang.static(range(rows)):
            for j in lang.static(range(width)):
                work[task * space + r * width + j] = sums[r * width + j]
        for r in range(rows):  # not unrolled, which would double the compile time
            for j in range(width):
                into[c, r, j] = sum_of(work[task * space + r * width + j])

    return nothing, store


def _find_rows(shape: NetworkShape, layer: int) -> tuple[int, int]:
    """Return the first row of a hidden layer's weights, and the number of rows. Its biases follow."""
    return (shape.inner + (layer - 1) * shape.layer, shape.width) if layer else (0, shape.n_in)


def _build_hidden_layer(lang: ModuleType, shape: NetworkShape, layer: int) -> Any:
    """Build the function that computes a hidden layer's values before activation."""
    (row, count), width, biases = _find_rows(shape, layer), shape.width, shape.biases
    vector = lang.types.vector(shape.lanes, getattr(lang, shape.dtype))

    @lang.func
    def totals_of(params: lang.template(), c, v: lang.template()):
        totals = [vector(0.0) for _ in lang.static(range(width))]
        for j in lang.static(range(width)):
            if lang.static(biases):
                totals[j] = vector(params[c, row + count, j])
            for k in lang.static(range(count)):
                totals[j] += params[c, row + k, j] * v[k]
        return totals

    return totals_of


def _build_output_layer(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the function that computes the outputs before activation."""
    row, n_out, width, biases = shape.outputs, shape.n_out, shape.width, shape.biases
    vector = lang.types.vector(shape.lanes, getattr(lang, shape.dtype))

    @lang.func
    def totals_of(params: lang.template(), c, v: lang.template()):
        totals = [vector(0.0) for _ in lang.static(range(n_out))]
        for j in lang.static(range(n_out)):
            if lang.static(biases):
                totals[j] = vector(params[c, row + n_out + j // width, j % width])
            for k in lang.static(range(width)):
                totals[j] += params[c, row + j, k] * v[k]
        return totals

    return totals_of


def _build_forward_from(lang: ModuleType, shape: NetworkShape, layer: int) -> Any:
    """Build the function that computes the outputs from a layer's input, recursively."""
    if layer == shape.hidden:
        totals_of = _build_output_layer(lang, shape)
        out, _ = build_activation(lang, shape.output_activation, shape.lanes, shape.dtype)

        @lang.func
        def last(params: lang.template(), c, v: lang.template()):
            return [out(total) for total in lang.static(totals_of(params, c, v))]

        return last

    hidden_totals_of, rest = _build_hidden_layer(lang, shape, layer), _build_forward_from(lang, shape, layer + 1)
    act, _ = build_activation(lang, shape.activation, shape.lanes, shape.dtype)

    @lang.func
    def onwards(params: lang.template(), c, v: lang.template()):
        h = [act(total) for total in lang.static(hidden_totals_of(params, c, v))]
        return rest(params, c, h)

    return onwards


def _build_forward_and_backward(
    lang: ModuleType, shape: NetworkShape, turn: Any, layer: int, *, of_inputs: bool
) -> Any:
    """Build the function that computes a forward and backward pass from a layer on: it returns the gradient of its
    input.

    `turn` computes the gradients of the outputs' values before activation from these values and `given`. Gradients of
    parameters are added to `sums`.
    """
    if layer == shape.hidden:
        return _build_output_turn(lang, shape, turn)
    (row, count), width, biases = _find_rows(shape, layer), shape.width, shape.biases
    is_wanted = layer > 0 or of_inputs
    totals_of = _build_hidden_layer(lang, shape, layer)
    rest = _build_forward_and_backward(lang, shape, turn, layer + 1, of_inputs=of_inputs)
    vector = lang.types.vector(shape.lanes, getattr(lang, shape.dtype))
    act, act_slope = build_activation(lang, shape.activation, shape.lanes, shape.dtype)

    @lang.func
    def there_and_back(params: lang.template(), c, v: lang.template(), given: lang.template(), sums: lang.template()):
        totals = totals_of(params, c, v)
        h = [act(total) for total in lang.static(totals)]
        back = rest(params, c, h, given, sums)
        grads = [vector(0.0) for _ in lang.static(range(count))]
        for j in lang.static(range(width)):
            g = back[j] * act_slope(totals[j])
            if lang.static(biases):
                sums[(row + count) * width + j] += g
            for k in lang.static(range(count)):
                sums[(row + k) * width + j] += v[k] * g
                if lang.static(is_wanted):
                    grads[k] += params[c, row + k, j] * g
        return grads

    return there_and_back


def _build_output_turn(lang: ModuleType, shape: NetworkShape, turn: Any) -> Any:
    """Build the last step of `_build_forward_and_backward`, the output layer."""
    totals_of = _build_output_layer(lang, shape)
    row, n_out, width, biases = shape.outputs, shape.n_out, shape.width, shape.biases
    vector = lang.types.vector(shape.lanes, getattr(lang, shape.dtype))

    @lang.func
    def turning(params: lang.template(), c, v: lang.template(), given: lang.template(), sums: lang.template()):
        g = turn(totals_of(params, c, v), given)
        grads = [vector(0.0) for _ in lang.static(range(width))]
        for j in lang.static(range(n_out)):
            if lang.static(biases):
                sums[(row + n_out) * width + j] += g[j]
            for k in lang.static(range(width)):
                sums[(row + j) * width + k] += g[j] * v[k]
                grads[k] += params[c, row + j, k] * g[j]
        return grads

    return turning
