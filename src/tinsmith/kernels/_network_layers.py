"""What `_network_rows` is made of: functions of four samples of a network at a time, with vectors across neurons.

Rows are what is multiplied whole: a sample's number times a row. A layer's input gradient needs the other way round,
so a network's hidden layers are turned once before its samples are gone through. Activations never leave a few
kilobytes: a backward pass works them out again (which takes as long as reading them back would) and keeps them, with
the gradients on their way, in `work`.
"""

from types import ModuleType
from typing import Any

from ._activations import activation
from ._network_shape import NetworkShape
from ._total import total_of

FETCHED = 64
"""Samples that are fetched ahead: of a usual batch all, and none is gone from the cache before its turn."""


def samples_of(lang: ModuleType) -> Any:
    @lang.func
    def samples(order: lang.template(), s, last):
        """Four samples of a network; the last one again where there are fewer."""
        return order[s], order[lang.min(s + 1, last)], order[lang.min(s + 2, last)], order[lang.min(s + 3, last)]

    return samples


def fetch_of(lang: ModuleType, shape: NetworkShape) -> Any:
    """The function that reads a number of each of the next samples of a network, all at once.

    Scattered samples are far from each other in memory: one after the other, each waits for it between its sums.
    """
    real = getattr(lang, shape.dtype)

    @lang.func
    def fetch(numbers: lang.template(), order: lang.template(), work: lang.template(), task, s, last):
        found = real(0.0)
        for i in range(s, lang.min(s + FETCHED, last + 1)):
            found += numbers[order[i], 0]
        work[task, 0, 0][0] = found  # overwritten before it is read; without it nothing would be fetched

    return fetch


def layers_of(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any]:
    """Functions of the kernels: four samples up to the last hidden layer; an output of one, before its activation."""
    n_in, n_out, width, hidden, biases = shape.n_in, shape.n_out, shape.width, shape.hidden, shape.biases
    lanes, groups, outputs, layer_rows = shape.lanes, shape.groups, shape.outputs, shape.layer
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))
    act, act_slope = activation(lang, shape.activation, lanes, shape.dtype)
    sum_of = total_of(lang, lanes, shape.dtype)
    slopes, top = 4 * hidden, 4 * hidden - 4

    @lang.func
    def bias_of(params: lang.template(), c, row, g):
        """What a layer's sums begin with: its biases, where it has some, in their row."""
        found = vector(0.0)
        if lang.static(biases):
            found = params[c, row, g]
        return found

    @lang.func
    def keep(work: lang.template(), task, layer, g, a0, a1, a2, a3, sloped: lang.template()):
        """Keep what four samples make of a layer's sums, and the slopes there if wanted."""
        p, q = 4 * layer, slopes + 4 * layer
        work[task, p, g], work[task, p + 1, g] = act(a0), act(a1)
        work[task, p + 2, g], work[task, p + 3, g] = act(a2), act(a3)
        if lang.static(sloped):
            work[task, q, g], work[task, q + 1, g] = act_slope(a0), act_slope(a1)
            work[task, q + 2, g], work[task, q + 3, g] = act_slope(a2), act_slope(a3)

    @lang.func
    def hidden_layers(
        x: lang.template(),
        params: lang.template(),
        work: lang.template(),
        task,
        c,
        s0,
        s1,
        s2,
        s3,
        sloped: lang.template(),
    ):
        for g in range(groups):
            a0 = bias_of(params, c, n_in, g)
            a1, a2, a3 = a0, a0, a0
            for k in range(n_in):
                w = params[c, k, g]
                a0 += x[s0, k] * w
                a1 += x[s1, k] * w
                a2 += x[s2, k] * w
                a3 += x[s3, k] * w
            keep(work, task, 0, g, a0, a1, a2, a3, sloped)
        for layer in range(1, hidden):
            row = n_in + biases + (layer - 1) * layer_rows
            p = 4 * layer - 4
            for g in range(groups):
                a0 = bias_of(params, c, row + width, g)
                a1, a2, a3 = a0, a0, a0
                for kg in range(groups):
                    for k in range(lanes):
                        w = params[c, row + kg * lanes + k, g]
                        a0 += work[task, p, kg][k] * w
                        a1 += work[task, p + 1, kg][k] * w
                        a2 += work[task, p + 2, kg][k] * w
                        a3 += work[task, p + 3, kg][k] * w
                keep(work, task, layer, g, a0, a1, a2, a3, sloped)

    @lang.func
    def output_of(params: lang.template(), work: lang.template(), task, c, m, j):
        products = params[c, outputs + j, 0] * work[task, top + m, 0]
        for g in range(1, groups):
            products += params[c, outputs + j, g] * work[task, top + m, g]
        total = sum_of(products)
        if lang.static(biases):
            total += params[c, outputs + n_out + j // width, j % width // lanes][j % lanes]
        return total

    return hidden_layers, output_of


def turn_of(lang: ModuleType, shape: NetworkShape) -> Any:
    width, lanes, groups, hidden = shape.width, shape.lanes, shape.groups, shape.hidden
    layer_rows, above = shape.layer, shape.n_in + shape.biases
    turned = 8 * hidden + 8

    @lang.func
    def turn(params: lang.template(), work: lang.template(), task, c):
        """A network's hidden layers, a row for each neuron that is fed, into `work`."""
        for layer in range(1, hidden):
            row, to = above + (layer - 1) * layer_rows, turned + (layer - 1) * width
            for k in range(width):
                for g in range(groups):
                    w = params[c, row + k, g]
                    for j in lang.static(range(lanes)):
                        work[task, to + g * lanes + j, k // lanes][k % lanes] = w[j]

    return turn


def gradients_of(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any, Any]:
    """Functions of the kernels that add a tile's gradients: of an output, of the hidden layers, of the inputs.

    The gradients of the layer at hand are in four rows of `work` at `back`, those of the one below go to the next four.
    """
    n_in, n_out, width, hidden, biases = shape.n_in, shape.n_out, shape.width, shape.hidden, shape.biases
    lanes, groups, outputs, layer_rows = shape.lanes, shape.groups, shape.outputs, shape.layer
    vector = lang.types.vector(lanes, getattr(lang, shape.dtype))
    sum_of = total_of(lang, lanes, shape.dtype)
    slopes, top, back, turned = 4 * hidden, 4 * hidden - 4, 8 * hidden, 8 * hidden + 8

    @lang.func
    def add_outputs(params: lang.template(), work: lang.template(), into: lang.template(), task, c, j, g0, g1, g2, g3):
        if lang.static(biases):
            row, jg, jk = outputs + n_out + j // width, j % width // lanes, j % lanes
            into[c, row, jg][jk] = into[c, row, jg][jk] + (g0 + g1 + g2 + g3)
        for g in range(groups):
            products = g0 * work[task, top, g] + g1 * work[task, top + 1, g]
            products += g2 * work[task, top + 2, g] + g3 * work[task, top + 3, g]
            into[c, outputs + j, g] = into[c, outputs + j, g] + products
            w = params[c, outputs + j, g]
            d0, d1, d2, d3 = g0 * w, g1 * w, g2 * w, g3 * w
            if j > 0:
                d0 += work[task, back, g]
                d1 += work[task, back + 1, g]
                d2 += work[task, back + 2, g]
                d3 += work[task, back + 3, g]
            work[task, back, g], work[task, back + 1, g] = d0, d1
            work[task, back + 2, g], work[task, back + 3, g] = d2, d3

    @lang.func
    def add_biases(work: lang.template(), into: lang.template(), task, c, layer, row, at):
        """From the gradients of a layer's activations to those of its sums, which its biases get."""
        q = slopes + 4 * layer
        for g in range(groups):
            d0 = work[task, at, g] * work[task, q, g]
            d1 = work[task, at + 1, g] * work[task, q + 1, g]
            d2 = work[task, at + 2, g] * work[task, q + 2, g]
            d3 = work[task, at + 3, g] * work[task, q + 3, g]
            work[task, at, g], work[task, at + 1, g] = d0, d1
            work[task, at + 2, g], work[task, at + 3, g] = d2, d3
            if lang.static(biases):
                into[c, row, g] = into[c, row, g] + (d0 + d1 + d2 + d3)

    @lang.func
    def add_weights(work: lang.template(), into: lang.template(), task, c, layer, row, at):
        p = 4 * layer - 4
        for g in range(groups):
            d0, d1 = work[task, at, g], work[task, at + 1, g]
            d2, d3 = work[task, at + 2, g], work[task, at + 3, g]
            for kg in range(groups):
                for k in range(lanes):
                    products = work[task, p, kg][k] * d0 + work[task, p + 1, kg][k] * d1
                    products += work[task, p + 2, kg][k] * d2 + work[task, p + 3, kg][k] * d3
                    r = row + kg * lanes + k
                    into[c, r, g] = into[c, r, g] + products

    @lang.func
    def lead_down(work: lang.template(), task, layer, at, to):
        """The gradients of the activations below, by the layer turned."""
        row = turned + (layer - 1) * width
        for g in range(groups):
            d0, d1, d2, d3 = vector(0.0), vector(0.0), vector(0.0), vector(0.0)
            for jg in range(groups):
                for j in range(lanes):
                    w = work[task, row + jg * lanes + j, g]
                    d0 += work[task, at, jg][j] * w
                    d1 += work[task, at + 1, jg][j] * w
                    d2 += work[task, at + 2, jg][j] * w
                    d3 += work[task, at + 3, jg][j] * w
            work[task, to, g], work[task, to + 1, g] = d0, d1
            work[task, to + 2, g], work[task, to + 3, g] = d2, d3

    @lang.func
    def add_layers(
        x: lang.template(),
        work: lang.template(),
        into: lang.template(),
        task,
        c,
        s0,
        s1,
        s2,
        s3,
    ):
        for below in range(hidden - 1):
            layer = hidden - 1 - below
            row = n_in + biases + (layer - 1) * layer_rows
            at = back + 4 * (below % 2)
            add_biases(work, into, task, c, layer, row + width, at)
            add_weights(work, into, task, c, layer, row, at)
            lead_down(work, task, layer, at, 2 * back + 4 - at)
        at = back + 4 * ((hidden - 1) % 2)
        add_biases(work, into, task, c, 0, n_in, at)
        for g in range(groups):
            d0, d1 = work[task, at, g], work[task, at + 1, g]
            d2, d3 = work[task, at + 2, g], work[task, at + 3, g]
            for k in range(n_in):
                products = x[s0, k] * d0 + x[s1, k] * d1
                products += x[s2, k] * d2 + x[s3, k] * d3
                into[c, k, g] = into[c, k, g] + products

    @lang.func
    def add_inputs(
        params: lang.template(),
        work: lang.template(),
        order: lang.template(),
        into: lang.template(),
        task,
        c,
        s,
        last,
    ):
        at = back + 4 * ((hidden - 1) % 2)
        for m in range(lang.min(4, last - s + 1)):
            o = order[s + m]
            for k in range(n_in):
                products = work[task, at + m, 0] * params[c, k, 0]
                for g in range(1, groups):
                    products += work[task, at + m, g] * params[c, k, g]
                into[o, k] = into[o, k] + sum_of(products)

    return add_outputs, add_layers, add_inputs
