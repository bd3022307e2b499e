"""NetworkArray: an independent small network for each cell of a grid, as one torch module."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import deprecated

from ..._errors import ArgumentError, DtypeError, ShapeError, refusal
from ..._integers import read_positive, read_seed
from ...calls import refuse_nested
from ...engines import HALVES
from ...kernels import ELEMENT_LOSSES
from ...torch_side import Layer, is_distributed, one_node, set_parameter
from ...tracing import constant_when_traced, is_transformed, reshape_result
from .._checks import check_dtype, require_seed
from .._distributed import call_on_parts, own_rows, shard_rows
from .._precision import COMPUTED, compute_dtype, round_to, widen
from ..config import Section, resolve_section
from ..losses import Loss
from . import _fused, _matrices
from ._cell_encoding import CellEncoding
from ._cells import At, Cells, read_grid_shape
from ._layout import Layout, draw_initial_params
from ._owners import Owners
from ._samples import lay_out_batches, sort_by_network

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

WAYS = ("auto", "fused", "matrices")


class NetworkArray(Layer):
    """An array of independent networks, one for each cell of a grid. All of them train at once, or only some.

    Args:
        grid_shape: number of cells along each axis of the grid, such as `(8, 8)`; or the number of cells.
        n_input_dims: the number of inputs of each network.
        n_output_dims: the number of outputs of each network.
        network_config: the network's part of a tiny-cuda-nn configuration: `activation`, `output_activation`,
            `n_neurons`, `n_hidden_layers`.
        encoding_config: the encoding's part, for an encoding before each network. If it has parameters (a grid), each
            network has its own. None: no encoding.
        biases: whether layers have biases, which start at zero. tiny-cuda-nn's layers have none.
        seed: seed of the initial weights (Xavier uniform, SIREN's for sines), drawn independently for each network.
        dtype: dtype of the parameters: float32, float64, float16 or bfloat16; torch's default if None. Half precision
            is computed in float32, and rounded once, at the end.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.
        way: "fused" runs the kernels of `kernels.forward_networks`; "matrices" runs torch's batched matrix products,
            which can be differentiated twice; "auto" chooses the faster one: the kernels on the CPU, except
            under the transforms of `torch.func`, which may need derivatives that the kernels lack.

    Attributes:
        params: the parameters of all networks, [cell, row, width]; `layers()` returns views of its parts.
        encoding: the encoding, or None. Its parameters are `encoding.params`, [cell, number].
        owners: the distribution of networks over processes after `shard`; None if this process has all.

    Raises:
        ConfigError: the configuration has an unknown key or value.
        ArgumentError, DtypeError: an unknown dtype or way, or an invalid grid.

    Example:
        >>> array = ts.nn.NetworkArray((4, 4), 2, 3, {"n_neurons": 16, "n_hidden_layers": 2})
        >>> array(torch.rand(4, 4, 100, 2)).shape
        torch.Size([4, 4, 100, 3])
    """

    def __init__(
        self,
        grid_shape: int | Sequence[int],
        n_input_dims: int,
        n_output_dims: int,
        network_config: Section | Mapping[str, Any] | str | Path | None = None,
        encoding_config: Section | Mapping[str, Any] | str | Path | None = None,
        *,
        biases: bool = True,
        seed: int = 1337,
        dtype: torch.dtype | None = None,
        engine: str | None = None,
        way: str = "auto",
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        n_input_dims = read_positive("n_input_dims", kind, n_input_dims)
        n_output_dims = read_positive("n_output_dims", kind, n_output_dims)
        self.grid_shape = read_grid_shape(grid_shape)
        self.config = resolve_section("network", network_config)
        self.n_input_dims, self.n_output_dims = n_input_dims, n_output_dims
        seed = read_seed(kind, seed)
        self.engine, self.seed = engine, seed
        self.way = _known_way(way)
        self.owners: Owners | None = None
        dtype = check_dtype("NetworkArray", dtype or torch.get_default_dtype())
        self.encoding = None
        if encoding_config is not None:
            self.encoding = CellEncoding(n_input_dims, encoding_config, self.cells, seed, dtype, engine)
        width = self.encoding.n_output_dims if self.encoding else n_input_dims
        self._layouts = {
            one: Layout.from_section(width, n_output_dims, self.config, biases=biases, dtype=one) for one in COMPUTED
        }
        start = draw_initial_params(self._layouts[compute_dtype(dtype)], self.cells, dtype, seed)
        self.params = torch.nn.Parameter(start.to(torch.get_default_device()))

    def reset_parameters(self) -> None:
        """Set `params` to their initial values again, drawn from the array's seed.

        Those of the encoding are reset by `encoding.reset_parameters()`. Call this for an array made on the meta
        device, after `to_empty`. If the parameters are DTensors, each process sets its shard.

        Raises:
            ArgumentError: the array is a `part` of another one.
        """
        set_parameter(
            self.params, draw_initial_params(self.layout, self.cells, self.params.dtype, require_seed(self.seed))
        )

    @property
    def cells(self) -> int:
        """The number of networks."""
        return math.prod(self.grid_shape)

    @property
    def layout(self) -> Layout:
        """The layout of `params` for the current dtype of the computation, which `.double()` changes."""
        return self._layouts[compute_dtype(check_dtype("NetworkArray", self.params.dtype))]

    @property
    def own_cells(self) -> range:
        """The networks of this process: all, unless `shard` was called."""
        return range(self.cells) if self.owners is None else self.owners.own

    def layers(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Return the weights [cell, in, out] and biases [cell, 1, out] (or None) of each layer, as views of `params`.

        After `shard`, they have only the cells of this process.
        """
        return self.layout.layers(own_rows(self.params))

    def shard(self, mesh: DeviceMesh) -> NetworkArray:
        """Shard the networks over processes, in place. Each process then trains its own networks.

        The parameters become DTensors, sharded by ranges of cells (`own_cells`), with the first process's values.
        Each process then passes samples of its own cells to `forward` and `loss`, and scattered points of any cells
        to `route_points`, the only communication: each point goes to the process of its network, its output back.
        Make optimizers after this call.

        Checkpoints of a `Trainer` load with any number of processes; so do those of `torch.distributed.checkpoint`.

        Args:
            mesh: a mesh of one dim, such as `init_device_mesh("cpu", (processes,))`.

        Returns:
            The array itself.

        Raises:
            ArgumentError: the mesh has several dims, or the networks are sharded already.

        Example:
            >>> def share_out(mesh):
            ...     array = ts.nn.NetworkArray((4, 4), 2, 3, {"n_neurons": 16, "n_hidden_layers": 2}).shard(mesh)
            ...     return array(torch.rand(len(array.own_cells), 100, 2))
        """
        if self.owners is not None:
            raise ArgumentError(refusal("the networks are sharded already", remedy="Make a new NetworkArray."))
        self.owners = Owners(mesh, self.cells)
        self.params = torch.nn.Parameter(shard_rows(self.params, mesh), self.params.requires_grad)
        if self.encoding:
            self.encoding.shard(mesh)
        return self

    # Choosing networks ---------------------------------------------------------------------
    def rows(self, at: At) -> torch.Tensor | None:
        """Convert a selection of networks to row indices into this process's part of `params`: [k] int64; None for all.

        Args:
            at: a boolean mask of the grid's shape; or indices [k] of cells, in row-major order; or positions [k, axis]
                in the grid; or a tuple of indices along each axis, as `numpy.nonzero` returns.

        Raises:
            ArgumentError: `at` is none of these, is outside the grid, or contains a cell twice or of another process.
        """
        if at is None:
            return None
        cells = Cells(self.grid_shape).select(at, self.params.device)
        return cells if self.owners is None else self.owners.own_rows(cells)

    def part(self, at: At) -> NetworkArray:
        """Copy the networks selected by `at`, with their parameters, into a new array with the grid shape [k].

        To train a few networks without computing the others, train the part, or pass its gradients to
        `RowOptimizer.step`.
        """
        rows = self.rows(at)
        params = own_rows(self.params.detach())
        chosen = params if rows is None else params[rows]
        # Without `__init__`, which would draw parameters that are not used.
        array = NetworkArray.__new__(NetworkArray)
        torch.nn.Module.__init__(array)
        array.grid_shape, array.config, array.engine, array.way = (len(chosen),), self.config, self.engine, self.way
        array.n_input_dims, array.n_output_dims, array._layouts = self.n_input_dims, self.n_output_dims, self._layouts
        array.owners, array.seed = None, None
        array.params = torch.nn.Parameter(chosen.clone(), self.params.requires_grad)
        array.encoding = self.encoding.part(rows) if self.encoding else None
        return array

    # Running -------------------------------------------------------------------------------
    @one_node
    def forward(self, x: torch.Tensor, at: At = None) -> torch.Tensor:
        """Evaluate each network on its own samples.

        Args:
            x: [*grid, batch, n_input_dims]; with `at`, [k, batch, n_input_dims] for the k selected cells; after
                `shard`, the same for the process's own cells. Of the dtype that the array is computed in, or of half
                precision. Differentiable.
            at: the networks to evaluate, see `rows`; None for all.

        Returns:
            [*grid, batch, n_output_dims], or [k, batch, n_output_dims].

        Raises:
            ShapeError, DtypeError, ArgumentError: an argument does not fit.
        """
        if self._is_replicated(x):
            self._check_tensor("x", x)
            axes = {"batch": {"x": x.ndim - 2, "": x.ndim - 2}}
            shape = (*x.shape[:-1], self.n_output_dims)
            return call_on_parts(self, functools.partial(self.forward, at=at), {"x": x}, axes, shape)
        params, grid = self._select_params(at)
        flat = self._encode(self._flat("x", x, grid, self.n_input_dims), at)
        y = self._outputs(params, flat, x)
        return reshape_result(round_to(y, self.params.dtype), (*grid, flat.shape[1], self.n_output_dims))

    def _outputs(self, params: torch.Tensor, encoded: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Compute the outputs for encoded inputs [cell, batch, channel]: [sample, n_out] or [cell, batch, n_out]."""
        if self._is_fused(x):
            samples = lay_out_batches(len(params), encoded.shape[1], x.device)
            return _fused.compute_outputs(self.layout, params, encoded.flatten(0, 1), samples, self.engine)
        return _matrices.compute_outputs(self.layout, params, encoded)

    def loss(self, x: torch.Tensor, target: torch.Tensor, otype: str = "L2", at: At = None) -> torch.Tensor:
        """Compute each network's loss, and its gradient in the same pass. Faster than `forward` followed by a loss.

        Args:
            x: as for `forward`.
            target: [*grid, batch, n_output_dims], or [k, batch, n_output_dims].
            otype: the name of a loss, see `Loss`.
            at: the networks to evaluate; None for all.

        Returns:
            [*grid], or [k] with `at` and after `shard`: means over a network's samples and outputs. `.sum().backward()`
            gives each network the gradient of its own loss. Differentiable in `params`; also in `x`, `target` and the
            parameters of an encoding, but then, as for RelativeL2Luminance and Variance and under `torch.compile`, it
            runs `forward` and then a loss.
        """
        if self._is_replicated(x, target):
            outputs = self.forward(x, at)
            grid = x.shape[:-2]
            losses = Loss(otype).compute_each(outputs.flatten(0, len(grid) - 1), target.flatten(0, len(grid) - 1))
            return losses.reshape(grid)
        params, grid = self._select_params(at)
        flat = self._flat("x", x, grid, self.n_input_dims)
        goal = self._flat("target", target, grid, self.n_output_dims)
        if goal.shape[1] != flat.shape[1]:
            rows = [("x", str(tuple(x.shape))), ("target", str(tuple(target.shape)))]
            remedy = "Pass one target for each row of `x`."
            raise ShapeError(refusal("`target` has another batch than `x`", rows, remedy))
        loss = _LOSSES[_loss(otype)]
        encoded = self._encode(flat, at)
        plain = not (encoded.requires_grad or goal.requires_grad or torch.compiler.is_compiling() or is_transformed())
        if self._is_fused(x) and loss.otype in ELEMENT_LOSSES and plain:
            samples = lay_out_batches(len(params), flat.shape[1], x.device)
            given = encoded.flatten(0, 1), goal.flatten(0, 1), samples
            losses = _fused.compute_losses(self.layout, loss.otype, params, *given, self.engine)
        else:
            losses = loss.compute_each(self._outputs(params, encoded, x).reshape(goal.shape), goal)
        losses = round_to(losses, self.params.dtype)
        # Only if needed: a reshape takes a few percent of a small step's time.
        return reshape_result(losses, grid) if len(grid) > 1 else losses

    def route_points(self, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Evaluate scattered points, each with the network of its cell.

        Args:
            points: [point, n_input_dims]. Differentiable.
            cells: [point], the cell of each point, in row-major order of the grid.

        Returns:
            [point, n_output_dims], in the order of the points.

        After `shard`, all processes must call this, each with any number of points of its own; if one runs a backward
        pass through it, all must.

        Raises:
            ShapeError, DtypeError, ArgumentError: an argument does not fit, or a cell is outside the grid.
        """
        if self._is_replicated(points, cells):
            self._check_tensor("points", points)
            axes = {"point": {"points": 0, "cells": 0, "": 0}}
            inputs = {"points": points, "cells": cells}
            return call_on_parts(self, self.route_points, inputs, axes, (len(points), self.n_output_dims))
        self._check_points(points, cells)
        if self.owners is None:
            return self._run_own(points, cells.long())
        return self.owners.route(points, cells.long(), self._run_own)

    @deprecated("`NetworkArray.routed` is named `route_points` now")
    def routed(self, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Call `route_points`, the new name of this method."""
        return self.route_points(points, cells)

    def _run_own(self, points: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        params = widen(own_rows(self.params))
        points = points.to(params.dtype)
        points = self.encoding.route_points(points, rows).to(params.dtype) if self.encoding else points
        y = self._route_points(params, points, rows)
        return round_to(y, self.params.dtype)

    def _route_points(self, params: torch.Tensor, points: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        if self._is_fused(points) and not self._is_transformed():  # no transform goes through the sorting
            sorting = sort_by_network(rows, len(params), self.engine)
            return sorting.restore(
                _fused.compute_outputs(self.layout, params, sorting.sort(points), sorting.samples, self.engine)
            )
        return _matrices.route_points(self.layout, params, points, rows)

    def _is_replicated(self, *inputs: torch.Tensor) -> bool:
        """Return True if an input or `params` is a DTensor, but the array was not sharded by `shard`."""
        return self.owners is None and is_distributed([*inputs, self.params])

    def _is_fused(self, x: torch.Tensor) -> bool:
        """Return True if the fused kernels should run: for "auto" on the CPU, where they are faster.

        benchmarks/networks.py measures this.
        """
        if self.layout.shape.hidden == 0 or x.numel() == 0:
            return False
        return self.way == "fused" or (self.way == "auto" and x.device.type == "cpu" and not self._is_transformed())

    def _is_transformed(self) -> bool:
        """Return True in forward mode and under a transform, which may need derivatives that the kernels lack."""
        return not torch.compiler.is_compiling() and is_transformed()

    def _select_params(self, at: At) -> tuple[torch.Tensor, tuple[int, ...]]:
        rows = self.rows(at)
        params = own_rows(self.params)
        if rows is None:
            return widen(params), self.grid_shape if self.owners is None else (len(params),)
        return widen(params[rows]), (len(rows),)

    def _encode(self, x: torch.Tensor, at: At) -> torch.Tensor:
        return self.encoding(x, self.rows(at)).to(x.dtype) if self.encoding else x

    # Checking ------------------------------------------------------------------------------
    def _flat(self, name: str, tensor: torch.Tensor, grid: tuple[int, ...], channels: int) -> torch.Tensor:
        """Reshape an input [*grid, batch, channel] to [cell, batch, channel], in the dtype of the computation."""
        self._check_tensor(name, tensor)
        if tensor.ndim != len(grid) + 2 or tuple(tensor.shape[: len(grid)]) != grid or tensor.shape[-1] != channels:
            expected = ", ".join([*map(str, grid), "batch", str(channels)])
            rows = [("expected", f"({expected})"), ("got", str(tuple(tensor.shape)))]
            raise ShapeError(refusal(f"`{name}` of NetworkArray has the wrong shape", rows))
        tensor = tensor.to(compute_dtype(self.params.dtype))
        return tensor.reshape(math.prod(grid), *tensor.shape[-2:]) if len(grid) > 1 else tensor

    def _check_points(self, points: torch.Tensor, cells: torch.Tensor) -> None:
        self._check_tensor("points", points)
        if not isinstance(cells, torch.Tensor):
            rows = [("got", type(cells).__name__)]
            remedy = "Pass torch.as_tensor(cells)."
            raise ArgumentError(refusal("`cells` of NetworkArray must be a tensor of integers", rows, remedy))
        if points.ndim != 2 or points.shape[1] != self.n_input_dims or cells.shape != points.shape[:1]:
            rows = [("`points`", f"got {tuple(points.shape)}, expected (n, {self.n_input_dims})")]
            rows.append(("`cells`", f"got {tuple(cells.shape)}, expected (n)"))
            raise ShapeError(refusal("`points` and `cells` of NetworkArray do not have the expected shapes", rows))
        if cells.is_floating_point() or cells.dtype == torch.bool:
            raise DtypeError(refusal("`cells` are not integers", [("got", str(cells.dtype))], "Pass `cells.long()`."))
        low, high = torch.aminmax(cells.long()) if len(cells) else (0, 0)
        if not 0 <= int(low) <= int(high) < self.cells:
            rows = [("got", f"{int(low)} to {int(high)}"), ("expected", f"0 to {self.cells - 1}")]
            remedy = "Count cells from 0, along the grid's last axis first."
            raise ArgumentError(refusal("`cells` names a cell outside the grid", rows, remedy))

    def _check_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if not isinstance(tensor, torch.Tensor):
            remedy = (
                f"Pass torch.as_tensor({name}, dtype={compute_dtype(check_dtype('NetworkArray', self.params.dtype))})."
            )
            rows = [("got", type(tensor).__name__)]
            raise ArgumentError(refusal(f"`{name}` of NetworkArray must be a tensor", rows, remedy))
        padded = f"Pass `{name}.to_padded_tensor(0.0)`, or single points to `route_points`."
        refuse_nested(name, tensor, "NetworkArray", remedy=padded)
        if self.owners is not None and is_distributed([tensor]):
            words = f"`{name}` is a DTensor, but a sharded NetworkArray takes each process's own samples"
            raise ArgumentError(refusal(words, remedy=f"Pass `{name}.to_local()`, with `{name}` sharded by cells."))
        wanted = compute_dtype(check_dtype("NetworkArray", self.params.dtype))
        if tensor.dtype != wanted and tensor.dtype not in HALVES:
            rows = [("expected", f"{wanted}, or half precision"), ("got", str(tensor.dtype))]
            remedy = f"Pass `{name}.to({wanted})`."
            raise DtypeError(refusal(f"`{name}` has another dtype than the NetworkArray", rows, remedy))

    def extra_repr(self) -> str:
        """Return the grid shape, the layer sizes and the activations, for `repr`."""
        one = self._layouts[torch.float32].shape
        sizes = " x ".join(map(str, [one.n_in, *[one.width] * one.hidden, one.n_out]))
        return f"{self.grid_shape}, {sizes}, {one.activation}, {one.output_activation}, biases={one.biases}"


_LOSSES: dict[str, Loss] = {}


@constant_when_traced
def _loss(otype: str) -> str:
    """Return the key of a loss in `_LOSSES`; create the loss in the first call."""
    if otype not in _LOSSES:
        _LOSSES[otype] = Loss(otype)
    return otype


def _known_way(way: str) -> str:
    if way not in WAYS:
        remedy = f"Pass one of {', '.join(map(repr, WAYS))}."
        raise ArgumentError(refusal(f"`way` of NetworkArray has an unknown value, {way!r}", remedy=remedy))
    return way
