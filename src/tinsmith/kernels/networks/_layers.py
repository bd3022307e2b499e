"""Forward passes of wider networks, for `_rows`: functions of many samples, with vectors across neurons.

A row of weights is multiplied as a whole, by a sample's number. The outputs need the transpose, so a network's output
layer is transposed once before its samples. Samples go through a layer four at a time, and `together` of them before
the next layer: so instructions of independent sums overlap, and the activations of that many samples stay in the
cache, in `work`.

`params` and `work` are one-dimensional arrays of vectors, in which a network begins at `p` and a task at `w`. With
more dims, each address was computed again after each store, by multiplications that took longer than the sums (Taichi
1.7.4, Quadrants 1.3.3). For the same reason, stores are grouped after the reads.
"""

from types import ModuleType
from typing import Any

from .._activations import build_activation
from ._shape import NetworkShape


def build_four_of(lang: ModuleType) -> Any:
    """Build the function that returns the indices of four of `count` samples from s on, repeating the last one to fill
    up.
    """

    @lang.func
    def four_of(s, count, tile):
        s0, last = s + 4 * tile, s + count - 1
        return s0, lang.min(s0 + 1, last), lang.min(s0 + 2, last), lang.min(s0 + 3, last)

    return four_of


def build_hidden_layers(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the function that computes samples' activations up to the last hidden layer."""
    n_in, width, hidden, lanes, groups = shape.n_in, shape.width, shape.hidden, shape.lanes, shape.groups
    inner, layer_vectors = shape.inner * groups, shape.layer * groups
    act, act_slope = build_activation(lang, shape.activation, lanes, shape.dtype)
    first_of, four_of, layer_space, slopes = (
        _build_first_of(lang, shape),
        build_four_of(lang),
        shape.layer_space,
        shape.slopes,
    )

    @lang.func
    def keep(work: lang.template(), at, a0, a1, a2, a3, sloped: lang.template()):
        """Store the activations of four samples, and their slopes if `sloped`."""
        b0, b1, b2, b3 = act(a0), act(a1), act(a2), act(a3)
        work[at], work[at + groups], work[at + 2 * groups], work[at + 3 * groups] = b0, b1, b2, b3
        if lang.static(sloped):
            c0, c1, c2, c3 = act_slope(a0), act_slope(a1), act_slope(a2), act_slope(a3)
            to = at + slopes
            work[to], work[to + groups], work[to + 2 * groups], work[to + 3 * groups] = c0, c1, c2, c3

    @lang.func
    def hidden_layers(
        x: lang.template(), params: lang.template(), work: lang.template(), p, w, s, count, sloped: lang.template()
    ):
        """Compute the hidden layers of `count` samples from s on."""
        for tile in range((count + 3) // 4):
            at = w + 4 * tile * groups
            s0, s1, s2, s3 = four_of(s, count, tile)
            for g in range(groups):
                a0 = first_of(params, p + n_in * groups + g)
                a1, a2, a3 = a0, a0, a0
                for k in range(n_in):
                    row = params[p + k * groups + g]
                    a0 += x[s0, k] * row
                    a1 += x[s1, k] * row
                    a2 += x[s2, k] * row
                    a3 += x[s3, k] * row
                keep(work, at + g, a0, a1, a2, a3, sloped)
        for layer in range(1, hidden):
            rows = p + inner + (layer - 1) * layer_vectors
            for tile in range((count + 3) // 4):
                below = w + (layer - 1) * layer_space + 4 * tile * groups
                for g in range(groups):
                    a0 = first_of(params, rows + width * groups + g)
                    a1, a2, a3 = a0, a0, a0
                    for kg in range(groups):
                        for k in range(lanes):
                            row = params[rows + (kg * lanes + k) * groups + g]
                            a0 += work[below + kg][k] * row
                            a1 += work[below + groups + kg][k] * row
                            a2 += work[below + 2 * groups + kg][k] * row
                            a3 += work[below + 3 * groups + kg][k] * row
                    keep(work, below + layer_space + g, a0, a1, a2, a3, sloped)

    return hidden_layers


def build_outputs(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any]:
    """Build two functions: one transposes the output layer, once; one computes a part of the outputs of four samples.

    The outputs are those before activation. With a product per row, each output would be a sum across a vector: such
    sums took longer than the hidden layers.
    """
    n_out, width, lanes, groups, some = shape.n_out, shape.width, shape.lanes, shape.groups, shape.some
    of_some, of_lanes = (lang.types.vector(count, getattr(lang, shape.dtype)) for count in (some, lanes))
    top, outputs, transposed = (shape.hidden - 1) * shape.layer_space, shape.outputs * groups, shape.transposed_outputs
    first_of = _build_first_of(lang, shape)

    @lang.func
    def narrow(vector):
        part = of_some(0.0)
        for k in lang.static(range(some)):
            part[k] = vector[k]
        return part

    @lang.func
    def transpose_outputs(params: lang.template(), work: lang.template(), p, w):
        for part in range((n_out + some - 1) // some):
            for k in range(width):
                row = of_lanes(0.0)
                for j in lang.static(range(some)):
                    if part * some + j < n_out:
                        row[j] = params[p + outputs + (part * some + j) * groups + k // lanes][k % lanes]
                work[w + transposed + part * width + k] = row

    @lang.func
    def outputs_of_four(params: lang.template(), work: lang.template(), p, w, tile, part):
        at = w + top + 4 * tile * groups
        a0 = narrow(first_of(params, p + outputs + n_out * groups + part))
        a1, a2, a3 = a0, a0, a0
        for kg in range(groups):
            for k in range(lanes):
                row = narrow(work[w + transposed + part * width + kg * lanes + k])
                a0 += work[at + kg][k] * row
                a1 += work[at + groups + kg][k] * row
                a2 += work[at + 2 * groups + kg][k] * row
                a3 += work[at + 3 * groups + kg][k] * row
        return a0, a1, a2, a3

    return transpose_outputs, outputs_of_four


def _build_first_of(lang: ModuleType, shape: NetworkShape) -> Any:
    vector, biases = lang.types.vector(shape.lanes, getattr(lang, shape.dtype)), shape.biases

    @lang.func
    def first_of(params: lang.template(), at):
        """Return the initial value of sums: the biases, or zeros."""
        start = vector(0.0)
        if lang.static(biases):
            start = params[at]
        return start

    return first_of
