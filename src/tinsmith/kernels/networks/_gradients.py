"""Backward passes of wider networks, for `_rows`: functions that add samples' gradients, with vectors across neurons.

The gradient of a layer's input needs the layer's weights transposed, so a network's hidden layers are transposed
once. Activations never leave a buffer of a few kilobytes: a backward pass recomputes them, which takes as long as
reading them from memory would. Gradients of parameters are summed over `together` samples, four rows at a time,
before they are stored.
"""

from types import ModuleType
from typing import Any

from ._layers import build_four_of
from ._shape import NetworkShape
from ._total import build_total


def build_layer_transpose(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the function that transposes a network's hidden layers into `work`, with a row for each input neuron."""
    width, hidden, lanes, groups, transposed = (
        shape.width,
        shape.hidden,
        shape.lanes,
        shape.groups,
        shape.transposed_layers,
    )
    inner, layer_vectors = shape.inner * groups, shape.layer * groups
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))

    @lang.func
    def turn(params: lang.template(), work: lang.template(), p, w):
        for layer in range(1, hidden):
            rows = p + inner + (layer - 1) * layer_vectors
            to = w + transposed + (layer - 1) * width * groups
            for j in range(width):
                for kg in range(groups):
                    row = vector(0.0)
                    for k in lang.static(range(lanes)):
                        row[k] = params[rows + (kg * lanes + k) * groups + j // lanes][j % lanes]
                    work[to + j * groups + kg] = row

    return turn


def build_gradients(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any, Any, Any]:
    """Build the backward functions of a network: `clear`, `add_outputs`, `add_layers` and `give_inputs`.

    They zero the gradient of the parameters; add samples' contributions to that of the output layer, and of the
    hidden layers; and write that of the inputs. The gradients of outputs are in `work` at `incoming`, part after
    part; those of the current layer and of the one below alternate at `back`. Samples missing from the last four have
    zero gradients.
    """
    n_in, n_out, width, hidden, biases = shape.n_in, shape.n_out, shape.width, shape.hidden, shape.biases
    lanes, groups, some, layer_space, together = (
        shape.lanes,
        shape.groups,
        shape.some,
        shape.layer_space,
        shape.together,
    )
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))
    sum_of, four_of = build_total(lang, lanes, shape.dtype), build_four_of(lang)
    inner, layer_vectors = shape.inner * groups, shape.layer * groups
    top, outputs, back, transposed = (
        (hidden - 1) * layer_space,
        shape.outputs * groups,
        shape.back,
        shape.transposed_layers,
    )
    slopes, incoming, vectors = shape.slopes, shape.incoming, shape.vectors

    @lang.func
    def clear(into: lang.template(), p):
        for r in range(vectors):
            into[p + r] = vector(0.0)

    @lang.func
    def take(work: lang.template(), layer_at, to, d0, d1, d2, d3):
        """Multiply the gradients of four samples' activations by the stored slopes.

        Store the products, and return their sum.
        """
        q = layer_at + slopes
        e0, e1 = d0 * work[q], d1 * work[q + groups]
        e2, e3 = d2 * work[q + 2 * groups], d3 * work[q + 3 * groups]
        work[to], work[to + groups], work[to + 2 * groups], work[to + 3 * groups] = e0, e1, e2, e3
        return (e0 + e1) + (e2 + e3)

    @lang.func
    def products(work: lang.template(), at, apart, k, d0, d1, d2, d3):
        """Return the sum over four samples of a vector times the sample's number k.

        Samples are `apart` vectors apart.
        """
        first_two = work[at][k] * d0 + work[at + apart][k] * d1
        return first_two + (work[at + 2 * apart][k] * d2 + work[at + 3 * apart][k] * d3)

    @lang.func
    def add_output_rows(work: lang.template(), into: lang.template(), p, w, g, tiles):
        for four in range((n_out + 3) // 4):
            j, v0, v1, v2, v3 = 4 * four, vector(0.0), vector(0.0), vector(0.0), vector(0.0)
            k = j % some
            for tile in range(tiles):
                at, i = w + top + 4 * tile * groups + g, w + incoming + j // some * together + 4 * tile
                a0, a1, a2, a3 = work[at], work[at + groups], work[at + 2 * groups], work[at + 3 * groups]
                v0 += products(work, i, 1, k, a0, a1, a2, a3)
                v1 += products(work, i, 1, k + 1, a0, a1, a2, a3)
                v2 += products(work, i, 1, k + 2, a0, a1, a2, a3)
                v3 += products(work, i, 1, k + 3, a0, a1, a2, a3)
            r = p + outputs + j * groups + g
            into[r] = into[r] + v0
            if j + 1 < n_out:
                into[r + groups] = into[r + groups] + v1
            if j + 2 < n_out:
                into[r + 2 * groups] = into[r + 2 * groups] + v2
            if j + 3 < n_out:
                into[r + 3 * groups] = into[r + 3 * groups] + v3

    @lang.func
    def add_outputs(params: lang.template(), work: lang.template(), into: lang.template(), p, w, tiles):
        if lang.static(biases):
            for part in range((n_out + some - 1) // some):
                bias, total = p + outputs + n_out * groups + part, vector(0.0)
                for tile in range(tiles):
                    i = w + incoming + part * together + 4 * tile
                    total += (work[i] + work[i + 1]) + (work[i + 2] + work[i + 3])
                into[bias] = into[bias] + total
        for g in range(groups):
            add_output_rows(work, into, p, w, g, tiles)
            total = vector(0.0)
            for tile in range(tiles):
                d0, d1, d2, d3 = vector(0.0), vector(0.0), vector(0.0), vector(0.0)
                for j in range(n_out):
                    i, k = w + incoming + j // some * together + 4 * tile, j % some
                    row = params[p + outputs + j * groups + g]
                    d0 += work[i][k] * row
                    d1 += work[i + 1][k] * row
                    d2 += work[i + 2][k] * row
                    d3 += work[i + 3][k] * row
                at = 4 * tile * groups + g
                total += take(work, w + top + at, w + back + at, d0, d1, d2, d3)
            if lang.static(biases):
                bias = p + outputs - groups + g
                into[bias] = into[bias] + total

    @lang.func
    def add_weights(work: lang.template(), into: lang.template(), below, rows, at, tiles):
        for g in range(groups):
            for four in range(width // 4):
                kg, k = 4 * four // lanes, 4 * four % lanes
                v0, v1, v2, v3 = vector(0.0), vector(0.0), vector(0.0), vector(0.0)
                for tile in range(tiles):
                    i, q = below + 4 * tile * groups + kg, at + 4 * tile * groups + g
                    d0, d1, d2, d3 = work[q], work[q + groups], work[q + 2 * groups], work[q + 3 * groups]
                    v0 += products(work, i, groups, k, d0, d1, d2, d3)
                    v1 += products(work, i, groups, k + 1, d0, d1, d2, d3)
                    v2 += products(work, i, groups, k + 2, d0, d1, d2, d3)
                    v3 += products(work, i, groups, k + 3, d0, d1, d2, d3)
                r = rows + 4 * four * groups + g
                r1, r2, r3 = r + groups, r + 2 * groups, r + 3 * groups
                u0, u1, u2, u3 = into[r] + v0, into[r1] + v1, into[r2] + v2, into[r3] + v3
                into[r], into[r1], into[r2], into[r3] = u0, u1, u2, u3

    @lang.func
    def lead_down(work: lang.template(), into: lang.template(), w, layer, at, to, bias, tiles):
        """Compute the gradients of the layer below, from the transposed weights."""
        rows = w + transposed + (layer - 1) * width * groups
        for g in range(groups):
            total = vector(0.0)
            for tile in range(tiles):
                d0, d1, d2, d3 = vector(0.0), vector(0.0), vector(0.0), vector(0.0)
                i = at + 4 * tile * groups
                for jg in range(groups):
                    for j in range(lanes):
                        row = work[rows + (jg * lanes + j) * groups + g]
                        d0 += work[i + jg][j] * row
                        d1 += work[i + groups + jg][j] * row
                        d2 += work[i + 2 * groups + jg][j] * row
                        d3 += work[i + 3 * groups + jg][j] * row
                q = 4 * tile * groups + g
                total += take(work, w + (layer - 1) * layer_space + q, to + q, d0, d1, d2, d3)
            if lang.static(biases):
                into[bias + g] = into[bias + g] + total

    @lang.func
    def add_first_layer(x: lang.template(), work: lang.template(), into: lang.template(), p, at, s, count):
        for g in range(groups):
            for two in range((n_in + 1) // 2):
                k0, k1 = 2 * two, lang.min(2 * two + 1, n_in - 1)
                v0, v1 = vector(0.0), vector(0.0)
                for tile in range((count + 3) // 4):
                    q = at + 4 * tile * groups + g
                    s0, s1, s2, s3 = four_of(s, count, tile)
                    d0, d1, d2, d3 = work[q], work[q + groups], work[q + 2 * groups], work[q + 3 * groups]
                    v0 += (x[s0, k0] * d0 + x[s1, k0] * d1) + (x[s2, k0] * d2 + x[s3, k0] * d3)
                    v1 += (x[s0, k1] * d0 + x[s1, k1] * d1) + (x[s2, k1] * d2 + x[s3, k1] * d3)
                r = p + k0 * groups + g
                into[r] = into[r] + v0
                if k0 + 1 < n_in:
                    into[r + groups] = into[r + groups] + v1

    @lang.func
    def add_layers(x: lang.template(), work: lang.template(), into: lang.template(), p, w, s, count):
        for above in range(hidden - 1):
            layer, tiles = hidden - 1 - above, (count + 3) // 4
            rows = p + inner + (layer - 1) * layer_vectors
            at, to = w + back + layer_space * (above % 2), w + back + layer_space * (1 - above % 2)
            add_weights(work, into, w + (layer - 1) * layer_space, rows, at, tiles)
            lead_down(work, into, w, layer, at, to, rows - groups, tiles)
        add_first_layer(x, work, into, p, w + back + layer_space * ((hidden - 1) % 2), s, count)

    @lang.func
    def give_inputs(params: lang.template(), work: lang.template(), into: lang.template(), p, w, s, count):
        at = w + back + layer_space * ((hidden - 1) % 2)
        for m in range(count):
            for k in range(n_in):
                sums = work[at + m * groups] * params[p + k * groups]
                for g in range(1, groups):
                    sums += work[at + m * groups + g] * params[p + k * groups + g]
                into[s + m, k] = sum_of(sums)

    return clear, add_outputs, add_layers, give_inputs
