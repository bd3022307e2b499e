"""Many small networks, each with samples of its own: the kernels, forward, backward, and both in one go.

What one network computes of a sample x, with its hidden layers' activation `act` and its outputs' `out`:

    a = act(x W_0 + b_0),  a = act(a W_i + b_i) for each further hidden layer,  y = out(a V + c)

`NetworkShape` says where these stand in `params[network, row, group]`. Rows are what is multiplied whole: a sample's
number times a row. A layer's input gradient needs the other way round, so a network's hidden layers are turned
once before its samples are gone through.

The samples of network `cells[a]` are `order[start[a]]` to `order[start[a + 1] - 1]`, four at a time, in four
accumulators. Activations never leave a few kilobytes: a backward pass works them out again (which takes as long
as reading them back would) and keeps them, with the gradients on their way, in `work`, of which each task has
its own. A task is the networks from `first[task]` to `first[task + 1]`; tasks run in parallel, and no two write
to one place (`_shares` says why a task is one of many iterations).

Measured (AVX-512, one core, 16 neurons): 45 to 60 GFLOP/s, half of what a large matrix product reaches, once
vectors are machine vectors (`simd`); engines' own code for vectors reaches 5 to 20.
"""

from types import ModuleType
from typing import Any

from ._activations import of_numbers
from ._element_losses import element_loss
from ._network_layers import gradients_of, layers_of, samples_of, turn_of
from ._network_shape import NetworkShape
from ._shares import SHARE, firsts


def forward_networks(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the kernel for an engine: outputs of samples.

    Its parameters, floats of the shape's dtype unless said:

        x       [sample, n_in]
        params  [network, row, group] of vectors of `lanes`
        cells   [a] int32              which network
        order   [sample] int32         samples, those of one network beside each other
        start   [a + 1] int32          where a network's begin in it, and where the last one's end
        first   [task + 1] int32       where a task's networks begin, in `cells`; no network stands there twice
        work    [task, work, group]    a task's own, of vectors
        y       [sample, n_out]        of samples of no network it stays as it is
    """
    array = _Arrays(lang, shape)
    number, rows, index = array.number, array.rows, array.index
    hidden_layers, output_of = layers_of(lang, shape)
    samples, only_first = samples_of(lang), firsts(lang)
    out, _ = of_numbers(lang, shape.output_activation, shape.dtype)
    n_out = shape.n_out

    @lang.kernel
    def networks(
        x: number, params: rows, cells: index, order: index, start: index, first: index, work: rows, y: number
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                a = first[task] + n
                c = cells[a]
                for tile in range((start[a + 1] - start[a] + 3) // 4):
                    s0, s1, s2, s3 = samples(order, start[a] + 4 * tile, start[a + 1] - 1)
                    hidden_layers(x, params, work, task, c, s0, s1, s2, s3, False)
                    for j in range(n_out):
                        y[s0, j] = out(output_of(params, work, task, c, 0, j))
                        y[s1, j] = out(output_of(params, work, task, c, 1, j))
                        y[s2, j] = out(output_of(params, work, task, c, 2, j))
                        y[s3, j] = out(output_of(params, work, task, c, 3, j))

    return networks


def backward_networks(lang: ModuleType, shape: NetworkShape, *, of_inputs: bool) -> Any:
    """Build the gradient kernel of `forward_networks`: of `params`, and of `x` if `of_inputs`.

    Its parameters are those of the forward kernel without `y`, and `grad_y`, `grad_params`, `grad_x`.
    Gradients are added to.
    """
    array = _Arrays(lang, shape)
    number, rows, index = array.number, array.rows, array.index
    hidden_layers, output_of = layers_of(lang, shape)
    samples, only_first, turn = samples_of(lang), firsts(lang), turn_of(lang, shape)
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
    def gradients(
        x: lang.template(),
        params: lang.template(),
        work: lang.template(),
        grad_y: lang.template(),
        grad_params: lang.template(),
        task,
        c,
        s0,
        s1,
        s2,
        s3,
        further,
    ):
        """Everything of a tile, of one sample and `further` ones, but the gradients of its inputs.

        Those of the first hidden layer's sums are in `work`.
        """
        hidden_layers(x, params, work, task, c, s0, s1, s2, s3, True)
        for j in range(n_out):
            g0 = incoming(params, work, grad_y, task, c, 0, s0, j, True)
            g1 = incoming(params, work, grad_y, task, c, 1, s1, j, further >= 1)
            g2 = incoming(params, work, grad_y, task, c, 2, s2, j, further >= 2)
            g3 = incoming(params, work, grad_y, task, c, 3, s3, j, further >= 3)
            add_outputs(params, work, grad_params, task, c, j, g0, g1, g2, g3)
        add_layers(x, work, grad_params, task, c, s0, s1, s2, s3)

    @lang.kernel
    def with_inputs(
        x: number,
        params: rows,
        cells: index,
        order: index,
        start: index,
        first: index,
        work: rows,
        grad_y: number,
        grad_x: number,
        grad_params: rows,
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                a = first[task] + n
                c, last = cells[a], start[a + 1] - 1
                if last >= start[a]:
                    turn(params, work, task, c)
                for tile in range((last - start[a] + 4) // 4):
                    s = start[a] + 4 * tile
                    s0, s1, s2, s3 = samples(order, s, last)
                    gradients(x, params, work, grad_y, grad_params, task, c, s0, s1, s2, s3, last - s)
                    add_inputs(params, work, order, grad_x, task, c, s, last)

    @lang.kernel
    def without_inputs(
        x: number,
        params: rows,
        cells: index,
        order: index,
        start: index,
        first: index,
        work: rows,
        grad_y: number,
        grad_params: rows,
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                a = first[task] + n
                c, last = cells[a], start[a + 1] - 1
                if last >= start[a]:
                    turn(params, work, task, c)
                for tile in range((last - start[a] + 4) // 4):
                    s = start[a] + 4 * tile
                    s0, s1, s2, s3 = samples(order, s, last)
                    gradients(x, params, work, grad_y, grad_params, task, c, s0, s1, s2, s3, last - s)

    return with_inputs if of_inputs else without_inputs


def learning_networks(lang: ModuleType, shape: NetworkShape, loss: str) -> Any:
    """Build the kernel that takes samples and targets, and gives each network's loss and its gradient in one go.

    Its parameters are those of the forward kernel but for `y`, and

        target       [sample, n_out]
        losses       [a]                    the mean over a network's samples and outputs; added to
        slopes       [network, row, group]  of vectors: the gradient of a network's loss; added to

    Args:
        lang: the engine's module.
        shape: of the networks.
        loss: one of `ELEMENT_LOSSES`.
    """
    array = _Arrays(lang, shape)
    number, rows, index, real = array.number, array.rows, array.index, array.real
    numbers = lang.types.ndarray(real, ndim=1)
    hidden_layers, output_of = layers_of(lang, shape)
    samples, only_first, turn = samples_of(lang), firsts(lang), turn_of(lang, shape)
    add_outputs, add_layers, _ = gradients_of(lang, shape)
    out, out_slope = of_numbers(lang, shape.output_activation, shape.dtype)
    loss_value, loss_slope = element_loss(lang, loss)
    n_out = shape.n_out

    @lang.func
    def learnt(params: lang.template(), work: lang.template(), target: lang.template(), task, c, m, s, j, scale):
        """Loss of output j and its gradient before the activation, both times `scale`: 0 for who is not there."""
        total = output_of(params, work, task, c, m, j)
        p, t = out(total), target[s, j]
        return scale * loss_value(p, t), scale * loss_slope(p, t) * out_slope(total)

    @lang.kernel
    def learning(
        x: number,
        target: number,
        params: rows,
        cells: index,
        order: index,
        start: index,
        first: index,
        work: rows,
        losses: numbers,
        slopes: rows,
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                a = first[task] + n
                c, last = cells[a], start[a + 1] - 1
                if last >= start[a]:
                    turn(params, work, task, c)
                part = real(1.0) / lang.cast(lang.max(start[a + 1] - start[a], 1) * n_out, real)
                loss = 0.0 * part
                for tile in range((last - start[a] + 4) // 4):
                    s = start[a] + 4 * tile
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
                losses[a] = loss

    return learning


class _Arrays:
    """Annotations."""

    def __init__(self, lang: ModuleType, shape: NetworkShape) -> None:
        self.real = getattr(lang, shape.dtype)
        self.number = lang.types.ndarray(self.real, ndim=2)
        self.index = lang.types.ndarray(lang.i32, ndim=1)
        self.rows = lang.types.ndarray(lang.types.vector(shape.lanes, self.real), ndim=3)
