"""Kernels of many small networks, each with its own samples: forward, backward, and loss with gradient.

A network's output for a sample x, with its hidden layers' activation `act` and its outputs' activation `out`:

    a = act(x W_0 + b_0),  a = act(a W_i + b_i) for each further hidden layer,  y = out(a V + c)

`NetworkShape` defines where these are in `params`. The samples of network c are `start[c]` to `start[c + 1] - 1`. The
computation of one network is in `_lanes` for narrow ones, with vectors across samples, and in `_rows` for others, with
vectors across neurons.

A task is the networks from `first[task]` to `first[task + 1]`; tasks run in parallel, and no two write to one place
(`_shares` says why a task is one of many iterations). Each has memory of its own, in `work`.
"""

from types import ModuleType
from typing import Any

from .._shares import SHARE, build_only_first
from . import _lanes, _rows
from ._shape import NetworkShape


def forward_networks(lang: ModuleType, shape: NetworkShape) -> Any:
    """Build the kernel that computes the outputs of samples.

    Its parameters, floats of the shape's dtype unless said:

        x       [sample, n_in]
        params  [network, row, width] if `by_sample`, else [network * vectors] of vectors with `lanes` numbers
        start   [network + 1] int32   where a network's samples begin, and where the last one's end
        first   [task + 1] int32      where a task's networks begin
        work    [task * space] of vectors; a workspace for each task
        y       [sample, n_out]
    """
    array = _Arrays(lang, shape)
    number, rows, index, own = array.number, array.rows, array.index, array.own
    only_first, forward = build_only_first(lang), _choose_layout(shape).build_forward(lang, shape)

    @lang.kernel
    def networks(x: number, params: rows, start: index, first: index, work: own, y: number):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                c = first[task] + n
                forward(x, params, work, y, task, c, start[c], start[c + 1] - 1)

    return networks


def backward_networks(lang: ModuleType, shape: NetworkShape, *, of_inputs: bool) -> Any:
    """Build the gradient kernel of `forward_networks`: of `params`, and of `x` if `of_inputs`.

    Its parameters are those of the forward kernel without `y`, and `grad_y`, `grad_params`, `grad_x`.
    All gradients are written: zeros for networks without samples.
    """
    array = _Arrays(lang, shape)
    number, rows, index, own = array.number, array.rows, array.index, array.own
    only_first, backward = (
        build_only_first(lang),
        _choose_layout(shape).build_backward(lang, shape, of_inputs=of_inputs),
    )

    @lang.kernel
    def with_inputs(
        x: number,
        params: rows,
        start: index,
        first: index,
        work: own,
        grad_y: number,
        grad_x: number,
        grad_params: rows,
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                c = first[task] + n
                backward(x, params, work, grad_y, grad_x, grad_params, task, c, start[c], start[c + 1] - 1)

    @lang.kernel
    def without_inputs(
        x: number, params: rows, start: index, first: index, work: own, grad_y: number, grad_params: rows
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                c = first[task] + n
                backward(x, params, work, grad_y, x, grad_params, task, c, start[c], start[c + 1] - 1)

    return with_inputs if of_inputs else without_inputs


def learning_networks(lang: ModuleType, shape: NetworkShape, loss: str) -> Any:
    """Build the kernel that computes each network's loss and its gradient from samples and targets.

    Its parameters are those of the forward kernel but for `y`, and

        target  [sample, n_out]
        losses  [network]       the mean over a network's samples and outputs
        slopes  like `params`   the gradient of a network's loss; zeros for networks without samples

    Args:
        lang: the engine's module.
        shape: of the networks.
        loss: one of `ELEMENT_LOSSES`.
    """
    array = _Arrays(lang, shape)
    number, rows, index, own, numbers = array.number, array.rows, array.index, array.own, array.numbers
    only_first, learning_of_one = build_only_first(lang), _choose_layout(shape).build_learning(lang, shape, loss)

    @lang.kernel
    def learning(
        x: number,
        target: number,
        params: rows,
        start: index,
        first: index,
        work: own,
        losses: numbers,
        slopes: rows,
    ):
        for place in range((first.shape[0] - 1) * SHARE):
            task = place // SHARE
            for n in range(only_first(place, first[task + 1] - first[task])):
                c = first[task] + n
                losses[c] = learning_of_one(x, target, params, work, slopes, task, c, start[c], start[c + 1] - 1)

    return learning


def _choose_layout(shape: NetworkShape) -> Any:
    return _lanes if shape.by_sample else _rows


class _Arrays:
    """Annotations of the kernels' parameters."""

    def __init__(self, lang: ModuleType, shape: NetworkShape) -> None:
        real = getattr(lang, shape.dtype)
        vector = lang.types.vector(shape.lanes, real)
        self.number = lang.types.ndarray(real, ndim=2)
        self.numbers = lang.types.ndarray(real, ndim=1)
        self.index = lang.types.ndarray(lang.i32, ndim=1)
        self.own = lang.types.ndarray(vector, ndim=1)
        self.rows = lang.types.ndarray(real, ndim=3) if shape.by_sample else self.own
