"""Networks of 16 neurons and more a layer: what a kernel does with one of them, four samples at a time.

Vectors go across neurons, in four accumulators (`_network_layers`). Measured (AVX-512, one core, 16 neurons): 45 to
60 GFLOP/s, half of what a large matrix product reaches, once vectors are machine vectors (`simd`); engines' own
code for vectors reaches 5 to 20.
"""

from types import ModuleType
from typing import Any

from ._activations import of_numbers
from ._element_losses import element_loss
from ._network_layers import FETCHED, fetch_of, gradients_of, layers_of, samples_of, turn_of
from ._network_shape import NetworkShape


def forward_of(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the function of a kernel: outputs of the samples `order[begin]` to `order[last]`, of network `c`."""
    hidden_layers, output_of = layers_of(lang, shape)
    samples, fetch = samples_of(lang), fetch_of(lang, shape)
    out, _ = of_numbers(lang, shape.output_activation, shape.dtype)
    n_out = shape.n_out

    @lang.func
    def forward(
        x: lang.template(),
        params: lang.template(),
        order: lang.template(),
        work: lang.template(),
        y: lang.template(),
        task,
        c,
        begin,
        last,
    ):
        for tile in range((last - begin + 4) // 4):
            s = begin + 4 * tile
            if 4 * tile % FETCHED == 0:
                fetch(x, order, work, task, s, last)
            s0, s1, s2, s3 = samples(order, s, last)
            hidden_layers(x, params, work, task, c, s0, s1, s2, s3, False)
            for j in range(n_out):
                y[s0, j] = out(output_of(params, work, task, c, 0, j))
                y[s1, j] = out(output_of(params, work, task, c, 1, j))
                y[s2, j] = out(output_of(params, work, task, c, 2, j))
                y[s3, j] = out(output_of(params, work, task, c, 3, j))

    return forward


def backward_of(lang: ModuleType, shape: NetworkShape, *, of_inputs: bool) -> Any:
    """Build the function that adds their gradients; `grad_x` is looked at only if `of_inputs`."""
    hidden_layers, output_of = layers_of(lang, shape)
    samples, fetch, turn = samples_of(lang), fetch_of(lang, shape), turn_of(lang, shape)
    add_outputs, add_layers, add_inputs = gradients_of(lang, shape)
    _, out_slope = of_numbers(lang, shape.output_activation, shape.dtype)
    n_out, has_slope = shape.n_out, shape.output_activation != "None"

    @lang.func
    def incoming(params: lang.template(), work: lang.template(), grad_y: lang.template(), task, c, m, s, j, is_there):
        """The gradient of output j before its activation; 0 for a sample that stands in for one that is not there."""
        found = lang.select(is_there, grad_y[s, j], 0.0 * grad_y[s, j])
        if lang.static(has_slope):
            found *= out_slope(output_of(params, work, task, c, m, j))
        return found

    @lang.func
    def backward(
        x: lang.template(),
        params: lang.template(),
        order: lang.template(),
        work: lang.template(),
        grad_y: lang.template(),
        grad_x: lang.template(),
        grad_params: lang.template(),
        task,
        c,
        begin,
        last,
    ):
        if last >= begin:
            turn(params, work, task, c)
        for tile in range((last - begin + 4) // 4):
            s = begin + 4 * tile
            if 4 * tile % FETCHED == 0:
                fetch(x, order, work, task, s, last)
                fetch(grad_y, order, work, task, s, last)
            s0, s1, s2, s3 = samples(order, s, last)
            hidden_layers(x, params, work, task, c, s0, s1, s2, s3, True)
            for j in range(n_out):
                g0 = incoming(params, work, grad_y, task, c, 0, s0, j, True)
                g1 = incoming(params, work, grad_y, task, c, 1, s1, j, s + 1 <= last)
                g2 = incoming(params, work, grad_y, task, c, 2, s2, j, s + 2 <= last)
                g3 = incoming(params, work, grad_y, task, c, 3, s3, j, s + 3 <= last)
                add_outputs(params, work, grad_params, task, c, j, g0, g1, g2, g3)
            add_layers(x, work, grad_params, task, c, s0, s1, s2, s3)
            if lang.static(of_inputs):
                add_inputs(params, work, order, grad_x, task, c, s, last)

    return backward


def learning_of(lang: ModuleType, shape: NetworkShape, loss: str) -> Any:
    """Build the function that gives the loss, the mean over samples and outputs, and adds its gradient."""
    real = getattr(lang, shape.dtype)
    hidden_layers, output_of = layers_of(lang, shape)
    samples, turn = samples_of(lang), turn_of(lang, shape)
    add_outputs, add_layers, _ = gradients_of(lang, shape)
    out, out_slope = of_numbers(lang, shape.output_activation, shape.dtype)
    loss_value, loss_slope = element_loss(lang, loss, shape.dtype)
    n_out = shape.n_out

    @lang.func
    def learnt(params: lang.template(), work: lang.template(), target: lang.template(), task, c, m, s, j, scale):
        """Loss of output j and its gradient before the activation, both times `scale`: 0 for who is not there."""
        total = output_of(params, work, task, c, m, j)
        p, t = out(total), target[s, j]
        return scale * loss_value(p, t), scale * loss_slope(p, t) * out_slope(total)

    @lang.func
    def learning(
        x: lang.template(),
        target: lang.template(),
        params: lang.template(),
        order: lang.template(),
        work: lang.template(),
        slopes: lang.template(),
        task,
        c,
        begin,
        last,
    ):
        if last >= begin:
            turn(params, work, task, c)
        part = real(1.0) / lang.cast(lang.max(last - begin + 1, 1) * n_out, real)
        loss = 0.0 * part
        for tile in range((last - begin + 4) // 4):
            s = begin + 4 * tile
            s0, s1, s2, s3 = samples(order, s, last)
            hidden_layers(x, params, work, task, c, s0, s1, s2, s3, True)
            part1 = lang.select(s + 1 <= last, part, 0.0 * part)
            part2 = lang.select(s + 2 <= last, part, 0.0 * part)
            part3 = lang.select(s + 3 <= last, part, 0.0 * part)
            for j in range(n_out):
                l0, g0 = learnt(params, work, target, task, c, 0, s0, j, part)
                l1, g1 = learnt(params, work, target, task, c, 1, s1, j, part1)
                l2, g2 = learnt(params, work, target, task, c, 2, s2, j, part2)
                l3, g3 = learnt(params, work, target, task, c, 3, s3, j, part3)
                loss += l0 + l1 + l2 + l3
                add_outputs(params, work, slopes, task, c, j, g0, g1, g2, g3)
            add_layers(x, work, slopes, task, c, s0, s1, s2, s3)
        return loss

    return learning
