"""Wider networks: vectors go across neurons, and samples are processed one after another.

The vectors are machine vectors (option `simd`). `_layers` has the forward pass, `_gradients` the backward pass.
"""

from types import ModuleType
from typing import Any

from .._activations import build_activation
from .._element_losses import build_vector_loss
from ._gradients import build_gradients, build_layer_transpose
from ._layers import build_four_of, build_hidden_layers, build_outputs
from ._shape import NetworkShape
from ._total import build_total


def build_forward(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the function that computes the outputs of the samples `begin` to `last`, of network `c`."""
    hidden_layers, (transpose_outputs, outputs_of_four) = build_hidden_layers(lang, shape), build_outputs(lang, shape)
    out, _ = build_activation(lang, shape.output_activation, shape.some, shape.dtype)
    n_out, some, vectors, space, together = shape.n_out, shape.some, shape.vectors, shape.space, shape.together
    four_of = build_four_of(lang)

    @lang.func
    def forward(
        x: lang.template(), params: lang.template(), work: lang.template(), y: lang.template(), task, c, begin, last
    ):
        p, w = c * vectors, task * space
        if last >= begin:
            transpose_outputs(params, work, p, w)
        for batch in range((last - begin + together) // together):
            s = begin + batch * together
            count = lang.min(last - s + 1, together)
            hidden_layers(x, params, work, p, w, s, count, False)
            for tile in range((count + 3) // 4):
                s0, s1, s2, s3 = four_of(s, count, tile)
                for part in range((n_out + some - 1) // some):
                    a0, a1, a2, a3 = outputs_of_four(params, work, p, w, tile, part)
                    y0, y1, y2, y3 = out(a0), out(a1), out(a2), out(a3)
                    for k in lang.static(range(some)):
                        j = part * some + k
                        if j < n_out:
                            y[s0, j], y[s1, j], y[s2, j], y[s3, j] = y0[k], y1[k], y2[k], y3[k]

    return forward


def build_backward(lang: ModuleType, shape: NetworkShape, *, of_inputs: bool) -> Any:
    """Build the function that computes the gradients of samples `begin` to `last`.

    `grad_x` is used only if `of_inputs`.
    """
    hidden_layers, (transpose_outputs, outputs_of_four) = build_hidden_layers(lang, shape), build_outputs(lang, shape)
    turn, (clear, add_outputs, add_layers, give_inputs) = (
        build_layer_transpose(lang, shape),
        build_gradients(lang, shape),
    )
    _, out_slope = build_activation(lang, shape.output_activation, shape.some, shape.dtype)
    has_slope = shape.output_activation != "None"
    numbers, keep, there = _build_output_access(lang, shape)
    n_out, some, vectors, space, together = shape.n_out, shape.some, shape.vectors, shape.space, shape.together
    four_of = build_four_of(lang)

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
        p, w = c * vectors, task * space
        clear(grad_params, p)
        if last >= begin:
            turn(params, work, p, w)
            if lang.static(has_slope):
                transpose_outputs(params, work, p, w)
        for batch in range((last - begin + together) // together):
            s = begin + batch * together
            count = lang.min(last - s + 1, together)
            hidden_layers(x, params, work, p, w, s, count, True)
            for tile in range((count + 3) // 4):
                s0, s1, s2, s3 = four_of(s, count, tile)
                for part in range((n_out + some - 1) // some):
                    g0, g1 = numbers(grad_y, s0, part), there(s0 < s1, numbers(grad_y, s1, part))
                    g2 = there(s1 < s2, numbers(grad_y, s2, part))
                    g3 = there(s2 < s3, numbers(grad_y, s3, part))
                    if lang.static(has_slope):
                        a0, a1, a2, a3 = outputs_of_four(params, work, p, w, tile, part)
                        g0, g1, g2, g3 = g0 * out_slope(a0), g1 * out_slope(a1), g2 * out_slope(a2), g3 * out_slope(a3)
                    keep(work, w, tile, part, g0, g1, g2, g3)
            add_outputs(params, work, grad_params, p, w, (count + 3) // 4)
            add_layers(x, work, grad_params, p, w, s, count)
            if lang.static(of_inputs):
                give_inputs(params, work, grad_x, p, w, s, count)

    return backward


def build_learning(lang: ModuleType, shape: NetworkShape, loss: str) -> Any:
    """Build the function that computes a network's loss, the mean over samples and outputs, and its gradient."""
    real = getattr(lang, shape.dtype)
    hidden_layers, (transpose_outputs, outputs_of_four) = build_hidden_layers(lang, shape), build_outputs(lang, shape)
    turn, (clear, add_outputs, add_layers, _) = build_layer_transpose(lang, shape), build_gradients(lang, shape)
    out, out_slope = build_activation(lang, shape.output_activation, shape.some, shape.dtype)
    loss_value, loss_slope = build_vector_loss(lang, loss, shape.some, shape.dtype)
    numbers, keep, there = _build_output_access(lang, shape)
    sum_of = build_total(lang, shape.some, shape.dtype)
    n_out, some, vectors, space, together = shape.n_out, shape.some, shape.vectors, shape.space, shape.together
    four_of = build_four_of(lang)
    vector, places = lang.types.vector(some, real), tuple(range(some))

    @lang.func
    def weigh(weight, vector):
        """Multiply by a weight; return 0 where the weight is 0, since a loss need not be finite there."""
        return lang.select(weight > weight * 0.0, weight * vector, weight * 0.0)

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
        p, w = c * vectors, task * space
        clear(slopes, p)
        if last >= begin:
            turn(params, work, p, w)
            transpose_outputs(params, work, p, w)
        share = vector(real(1.0) / lang.cast(lang.max(last - begin + 1, 1) * n_out, real))
        losses = vector(0.0)
        for batch in range((last - begin + together) // together):
            s = begin + batch * together
            count = lang.min(last - s + 1, together)
            hidden_layers(x, params, work, p, w, s, count, True)
            for tile in range((count + 3) // 4):
                s0, s1, s2, s3 = four_of(s, count, tile)
                for part in range((n_out + some - 1) // some):
                    c0 = lang.select(vector(*places) < vector(lang.cast(n_out - part * some, real)), share, vector(0.0))
                    c1, c2, c3 = there(s0 < s1, c0), there(s1 < s2, c0), there(s2 < s3, c0)
                    a0, a1, a2, a3 = outputs_of_four(params, work, p, w, tile, part)
                    y0, y1, y2, y3 = out(a0), out(a1), out(a2), out(a3)
                    t0, t1 = numbers(target, s0, part), numbers(target, s1, part)
                    t2, t3 = numbers(target, s2, part), numbers(target, s3, part)
                    losses += weigh(c0, loss_value(y0, t0)) + weigh(c1, loss_value(y1, t1))
                    losses += weigh(c2, loss_value(y2, t2)) + weigh(c3, loss_value(y3, t3))
                    g0 = weigh(c0, loss_slope(y0, t0) * out_slope(a0))
                    g1 = weigh(c1, loss_slope(y1, t1) * out_slope(a1))
                    g2 = weigh(c2, loss_slope(y2, t2) * out_slope(a2))
                    g3 = weigh(c3, loss_slope(y3, t3) * out_slope(a3))
                    keep(work, w, tile, part, g0, g1, g2, g3)
            add_outputs(params, work, slopes, p, w, (count + 3) // 4)
            add_layers(x, work, slopes, p, w, s, count)
        return sum_of(losses)

    return learning


def _build_output_access(lang: ModuleType, shape: NetworkShape) -> tuple[Any, Any, Any]:
    """Build three functions: read a sample's numbers of a part of the outputs; store those of four samples; zero
    missing ones.
    """
    n_out, some, incoming, together = shape.n_out, shape.some, shape.incoming, shape.together
    of_some, of_lanes = (lang.types.vector(count, getattr(lang, shape.dtype)) for count in (some, shape.lanes))

    @lang.func
    def numbers(array: lang.template(), s, part):
        row = of_some(0.0)
        for k in lang.static(range(some)):
            if part * some + k < n_out:
                row[k] = array[s, part * some + k]
        return row

    @lang.func
    def widen(vector):
        wide = of_lanes(0.0)
        for k in lang.static(range(some)):
            wide[k] = vector[k]
        return wide

    @lang.func
    def keep(work: lang.template(), w, tile, part, g0, g1, g2, g3):
        to = w + incoming + part * together + 4 * tile
        work[to], work[to + 1], work[to + 2], work[to + 3] = widen(g0), widen(g1), widen(g2), widen(g3)

    @lang.func
    def there(is_there, vector):
        return lang.select(is_there, vector, of_some(0.0))

    return numbers, keep, there
