"""What `_network_rows` is made of: functions of four samples of a network at a time, with vectors across neurons.

Rows are what is multiplied whole: a sample's number times a row. A layer's input gradient and the outputs need the
other way round, so a network's hidden layers and outputs are turned once before its samples are gone through.
Activations never leave a few kilobytes: a backward pass works them out again (which takes as long as reading them back
would) and keeps them, with the gradients on their way, in `work`.

`params` and `work` are long lists of vectors, in which `p` and `w` are where a network's and a task's begin. With dims
of their own, each place in them was found anew after each store, by multiplications that took longer than the sums
(Taichi 1.7.4, Quadrants 1.3.3). What can be stored together is, behind what is read.
"""

from types import ModuleType
from typing import Any

from ._activations import activation
from ._network_shape import NetworkShape
from ._total import total_of


def layers_of(lang: ModuleType, shape: NetworkShape) -> Any:
    """The function that takes four samples up to the last hidden layer."""
    n_in, width, hidden, biases = shape.n_in, shape.width, shape.hidden, shape.biases
    lanes, groups = shape.lanes, shape.groups
    act, act_slope = activation(lang, shape.activation, lanes, shape.dtype)
    first_of, slopes = _first_of(lang, shape), shape.slopes

    @lang.func
    def keep(work: lang.template(), at, a0, a1, a2, a3, sloped: lang.template()):
        """Keep what four samples make of a layer's sums, and the slopes there if wanted."""
        b0, b1, b2, b3 = act(a0), act(a1), act(a2), act(a3)
        work[at], work[at + groups], work[at + 2 * groups], work[at + 3 * groups] = b0, b1, b2, b3
        if lang.static(sloped):
            c0, c1, c2, c3 = act_slope(a0), act_slope(a1), act_slope(a2), act_slope(a3)
            to = at + slopes
            work[to], work[to + groups], work[to + 2 * groups], work[to + 3 * groups] = c0, c1, c2, c3

    @lang.func
    def hidden_layers(
        x: lang.template(),
        params: lang.template(),
        work: lang.template(),
        p,
        w,
        s0,
        s1,
        s2,
        s3,
        sloped: lang.template(),
    ):
        for g in range(groups):
            a0 = first_of(params, p + n_in * groups + g)
            a1, a2, a3 = a0, a0, a0
            for k in range(n_in):
                row = params[p + k * groups + g]
                a0 += x[s0, k] * row
                a1 += x[s1, k] * row
                a2 += x[s2, k] * row
                a3 += x[s3, k] * row
            keep(work, w + g, a0, a1, a2, a3, sloped)
        for layer in range(1, hidden):
            rows = p + (n_in + biases + (layer - 1) * (width + biases)) * groups
            below = w + 4 * (layer - 1) * groups
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
                keep(work, below + 4 * groups + g, a0, a1, a2, a3, sloped)

    return hidden_layers


def outputs_of(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any]:
    """Functions: a network's outputs turned, once; a vector of outputs of each of four samples, before activation.

    As a product a row, each output would be a sum across a vector: such sums took longer than the hidden layers.
    """
    n_out, width, lanes, groups, some = shape.n_out, shape.width, shape.lanes, shape.groups, shape.some
    of_some, of_lanes = (lang.types.vector(count, getattr(lang, shape.dtype)) for count in (some, lanes))
    top, outputs, turned = 4 * (shape.hidden - 1) * groups, shape.outputs * groups, shape.turned_outputs
    first_of = _first_of(lang, shape)

    @lang.func
    def narrowed(vector):
        found = of_some(0.0)
        for k in lang.static(range(some)):
            found[k] = vector[k]
        return found

    @lang.func
    def turn_outputs(params: lang.template(), work: lang.template(), p, w):
        for part in range((n_out + some - 1) // some):
            for k in range(width):
                row = of_lanes(0.0)
                for j in lang.static(range(some)):
                    if part * some + j < n_out:
                        row[j] = params[p + outputs + (part * some + j) * groups + k // lanes][k % lanes]
                work[w + turned + part * width + k] = row

    @lang.func
    def outputs_of_four(params: lang.template(), work: lang.template(), p, w, part):
        a0 = narrowed(first_of(params, p + outputs + n_out * groups + part))
        a1, a2, a3 = a0, a0, a0
        for kg in range(groups):
            for k in range(lanes):
                row = narrowed(work[w + turned + part * width + kg * lanes + k])
                a0 += work[w + top + kg][k] * row
                a1 += work[w + top + groups + kg][k] * row
                a2 += work[w + top + 2 * groups + kg][k] * row
                a3 += work[w + top + 3 * groups + kg][k] * row
        return a0, a1, a2, a3

    return turn_outputs, outputs_of_four


def _first_of(lang: ModuleType, shape: NetworkShape) -> Any:
    vector, biases = lang.types.vector(shape.lanes, getattr(lang, shape.dtype)), shape.biases

    @lang.func
    def first_of(params: lang.template(), at):
        """What sums begin with: biases, where there are some."""
        found = vector(0.0)
        if lang.static(biases):
            found = params[at]
        return found

    return first_of


def turn_of(lang: ModuleType, shape: NetworkShape) -> Any:
    """The function that turns a network's hidden layers: a row for each neuron that is fed, into `work`."""
    n_in, width, hidden, biases = shape.n_in, shape.width, shape.hidden, shape.biases
    lanes, groups, turned = shape.lanes, shape.groups, shape.turned
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))

    @lang.func
    def turn(params: lang.template(), work: lang.template(), p, w):
        for layer in range(1, hidden):
            rows = p + (n_in + biases + (layer - 1) * (width + biases)) * groups
            to = w + turned + (layer - 1) * width * groups
            for j in range(width):
                for kg in range(groups):
                    row = vector(0.0)
                    for k in lang.static(range(lanes)):
                        row[k] = params[rows + (kg * lanes + k) * groups + j // lanes][j % lanes]
                    work[to + j * groups + kg] = row

    return turn


def gradients_of(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any, Any]:
    """Functions that add four samples' gradients: of the outputs, of the hidden layers, of the inputs.

    The gradients of outputs stand in `work` at `incoming`, a vector of them for each sample, part after part. Those
    of the layer at hand are in four rows at `back`, those of the one below go to the next four.
    """
    n_in, n_out, width, hidden, biases = shape.n_in, shape.n_out, shape.width, shape.hidden, shape.biases
    lanes, groups, some = shape.lanes, shape.groups, shape.some
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))
    sum_of = total_of(lang, lanes, shape.dtype)
    top, outputs, back, turned = 4 * (hidden - 1) * groups, shape.outputs * groups, shape.back, shape.turned
    slopes, incoming = shape.slopes, shape.incoming

    @lang.func
    def take(work: lang.template(), into: lang.template(), layer_at, to, bias, d0, d1, d2, d3):
        """From the gradients of a layer's activations to those of its sums: kept, and what its biases get."""
        q = layer_at + slopes
        e0, e1 = d0 * work[q], d1 * work[q + groups]
        e2, e3 = d2 * work[q + 2 * groups], d3 * work[q + 3 * groups]
        work[to], work[to + groups], work[to + 2 * groups], work[to + 3 * groups] = e0, e1, e2, e3
        if lang.static(biases):
            into[bias] = into[bias] + ((e0 + e1) + (e2 + e3))

    @lang.func
    def add_outputs(params: lang.template(), work: lang.template(), into: lang.template(), p, w):
        if lang.static(biases):
            for part in range((n_out + some - 1) // some):
                bias, g = p + outputs + n_out * groups + part, w + incoming + 4 * part
                into[bias] = into[bias] + ((work[g] + work[g + 1]) + (work[g + 2] + work[g + 3]))
        for g in range(groups):
            at = w + top + g
            a0, a1, a2, a3 = work[at], work[at + groups], work[at + 2 * groups], work[at + 3 * groups]
            d0, d1, d2, d3 = vector(0.0), vector(0.0), vector(0.0), vector(0.0)
            for j in range(n_out):
                i, r = w + incoming + 4 * (j // some), p + outputs + j * groups + g
                g0, g1, g2, g3 = work[i][j % some], work[i + 1][j % some], work[i + 2][j % some], work[i + 3][j % some]
                row = params[r]
                d0 += g0 * row
                d1 += g1 * row
                d2 += g2 * row
                d3 += g3 * row
                into[r] = into[r] + ((g0 * a0 + g1 * a1) + (g2 * a2 + g3 * a3))
            take(work, into, at, w + back + g, p + outputs - groups + g, d0, d1, d2, d3)

    @lang.func
    def products(work: lang.template(), at, k, d0, d1, d2, d3):
        """Of the numbers at k of four samples' activations, with their gradients."""
        found = work[at][k] * d0 + work[at + groups][k] * d1
        return found + (work[at + 2 * groups][k] * d2 + work[at + 3 * groups][k] * d3)

    @lang.func
    def add_weights(work: lang.template(), into: lang.template(), below, rows, at):
        for g in range(groups):
            d0, d1, d2, d3 = work[at + g], work[at + groups + g], work[at + 2 * groups + g], work[at + 3 * groups + g]
            for kg in range(groups):
                for k in lang.static(range(0, lanes, 2)):
                    r = rows + (kg * lanes + k) * groups + g
                    v0 = into[r] + products(work, below + kg, k, d0, d1, d2, d3)
                    v1 = into[r + groups] + products(work, below + kg, k + 1, d0, d1, d2, d3)
                    into[r], into[r + groups] = v0, v1

    @lang.func
    def lead_down(work: lang.template(), into: lang.template(), w, layer, at, to, bias):
        """The gradients of the layer below, by the layer turned."""
        rows = w + turned + (layer - 1) * width * groups
        for g in range(groups):
            d0, d1, d2, d3 = vector(0.0), vector(0.0), vector(0.0), vector(0.0)
            for jg in range(groups):
                for j in range(lanes):
                    row = work[rows + (jg * lanes + j) * groups + g]
                    d0 += work[at + jg][j] * row
                    d1 += work[at + groups + jg][j] * row
                    d2 += work[at + 2 * groups + jg][j] * row
                    d3 += work[at + 3 * groups + jg][j] * row
            take(work, into, w + 4 * (layer - 1) * groups + g, to + g, bias + g, d0, d1, d2, d3)

    @lang.func
    def add_layers(x: lang.template(), work: lang.template(), into: lang.template(), p, w, s0, s1, s2, s3):
        for above in range(hidden - 1):
            layer = hidden - 1 - above
            rows = p + (n_in + biases + (layer - 1) * (width + biases)) * groups
            at, to = w + back + 4 * groups * (above % 2), w + back + 4 * groups * (1 - above % 2)
            add_weights(work, into, w + 4 * (layer - 1) * groups, rows, at)
            lead_down(work, into, w, layer, at, to, rows - groups)
        at = w + back + 4 * groups * ((hidden - 1) % 2)
        for g in range(groups):
            d0, d1, d2, d3 = work[at + g], work[at + groups + g], work[at + 2 * groups + g], work[at + 3 * groups + g]
            for k in range(n_in):
                r = p + k * groups + g
                into[r] = into[r] + ((x[s0, k] * d0 + x[s1, k] * d1) + (x[s2, k] * d2 + x[s3, k] * d3))

    @lang.func
    def add_inputs(params: lang.template(), work: lang.template(), into: lang.template(), p, w, s, last):
        at = w + back + 4 * groups * ((hidden - 1) % 2)
        for m in range(lang.min(4, last - s + 1)):
            for k in range(n_in):
                found = work[at + m * groups] * params[p + k * groups]
                for g in range(1, groups):
                    found += work[at + m * groups + g] * params[p + k * groups + g]
                into[s + m, k] = into[s + m, k] + sum_of(found)

    return add_outputs, add_layers, add_inputs
