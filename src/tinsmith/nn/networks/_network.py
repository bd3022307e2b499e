"""Network and NetworkWithInputEncoding: modules described by tiny-cuda-nn's configurations, in plain torch.

For a single network no kernel is faster than torch's matrix products, so only the encoding runs kernels. Every
derivative is available, and `torch.compile` sees the network's operations. Arrays of networks are in `_array`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from ..._integers import read_positive, read_seed
from ...torch_side import Layer, is_distributed, one_node, set_parameter
from ...tracing import reshape_result
from .._checks import check_dtype, explain_unfit_params, prepare_input
from .._distributed import forward_on_parts
from .._precision import round_to, widen
from ..config import Section, resolve_section
from ..encodings import Encoder, build_encoder, draw_params
from ._alignment import ALIGNMENT, Columns, find_columns
from ._mlp import Mlp

ConfigLike = Section | Mapping[str, Any] | str | Path | None


class _PaddedModule(Layer):
    """The base class of both modules: flat `params` that begin with the network's matrices, and a padded input.

    Attributes:
        own_columns: the columns of the first matrix that the inputs belong to; the others are padding.
        columns, constants: buffers, see `Mlp.__call__`; None if they are not needed.
    """

    mlp: Mlp
    n_input_dims: int
    seed: int
    own_columns: tuple[int, ...]
    columns: Tensor | None
    constants: Tensor | None

    def _register(self, columns: Columns, dtype: torch.dtype, *parts: Mlp | Encoder) -> None:
        """Register the buffers that describe the columns, and `params` with the initial parameters of the parts."""
        self._constants = tuple([constant or 0.0 for constant in columns])
        self.own_columns = tuple([place for place, constant in enumerate(columns) if constant is None])
        are_leading = self.own_columns == tuple(range(len(self.own_columns)))
        device = torch.get_default_device()
        self.register_buffer("columns", None if are_leading else self._make_columns(device), persistent=False)
        constants = self._make_constants(device, dtype) if any(self._constants) else None
        self.register_buffer("constants", constants, persistent=False)
        self._parts = parts
        self.params = torch.nn.Parameter(draw_params(self.seed, *parts).to(device, dtype))

    def _make_columns(self, device: torch.device) -> Tensor:
        return torch.tensor(self.own_columns, dtype=torch.int64, device=device)

    def _make_constants(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        return torch.tensor(self._constants, dtype=dtype, device=device)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Apply a conversion such as `.to()`, and recompute the buffers.

        State dicts do not contain the buffers, and `to_empty` leaves them uninitialized.
        """
        super()._apply(fn, recurse)
        if self.columns is not None and not is_distributed([self.columns]):
            self.columns = self._make_columns(self.columns.device)
        if self.constants is not None and not is_distributed([self.constants]):
            self.constants = self._make_constants(self.constants.device, self.constants.dtype)
        return self

    @property
    def native_output_dims(self) -> int:
        """The number of rows of the last matrix: the output dims with padding."""
        return self.mlp.shapes[-1][0]

    @property
    def matrix_shapes(self) -> tuple[tuple[int, int], ...]:
        """The shapes (out, in) of the matrices that `params` begins with."""
        return self.mlp.shapes

    def reset_parameters(self) -> None:
        """Set the parameters to their initial values again, drawn from the module's seed.

        Call this for a module made on the meta device, after `to_empty`. If the parameters are a DTensor, each process
        sets its shard.
        """
        set_parameter(self.params, draw_params(self.seed, *self._parts))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        _pad_saved_params(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        explain_unfit_params(self, state_dict, prefix, *args, **kwargs)


class NetworkWithInputEncoding(_PaddedModule):
    """An input encoding and a small network, described by tiny-cuda-nn configurations.

    With encoding e, matrices W and activations f:   y = f_out(W_n f(... W_2 f(W_1 e(x))))

    Networks: FullyFusedMLP and CutlassMLP (MLP), equal here; any `n_neurons`. Activations: None, ReLU, LeakyReLU,
    SiLU, Exponential, Sine, Sigmoid, Squareplus, Softplus, Tanh; formulas in `tinsmith.reference.activation`.

    Args:
        n_input_dims: number of input dims, the coordinates of a position.
        n_output_dims: number of output dims.
        encoding_config: see `Encoding`. None: all defaults.
        network_config: the configuration, as a mapping, a JSON string or a path; None: all defaults.
        seed: seed of the initial parameters.
        dtype: dtype of the parameters and the result: float32, the default, float64, float16 or bfloat16. `.double()`,
            `.half()` and so on change it. Half precision is computed in float32, and rounded once, at the end.
        engine: what the encoding runs on: "taichi" or "quadrants"; None for a running engine, else an installed one.
        alignment: the widths of input and output are padded to multiples of this number. With 16, as in tiny-cuda-nn,
            `params` has the layout of tiny-cuda-nn's module, and this one loads a `state_dict` saved by it. The columns
            that pad the network's input contain ones (after a grid, zeros), so their weights act as a bias of the first
            layer. The output's added rows are never read. 1: no padding, so no bias.

    Attributes:
        n_input_dims, n_output_dims: as passed.
        native_output_dims: rows of the last matrix: `n_output_dims`, padded to a multiple of `alignment`.
        params: all parameters, flat: the network's matrices in order, each [out, in] row by row, then the encoding's.
        matrix_shapes: the shapes (out, in) of the matrices at the start of `params`. The optimizers of this library
            treat the matrices and the rest, the table of a grid, differently, as tiny-cuda-nn does.

    The input (..., n_input_dims) may have any real dtype, and is cast to that of the computation; the output is
    (..., n_output_dims). Differentiable in the input and in `params`, any number of times, in both modes. Under
    `torch.autocast` the matrix products run in half precision, as those of `torch.nn.Linear` do.

    A `state_dict` saved with alignment=1, the default of version 0.1.0, is padded with zeros when it is loaded: the
    function stays the same. To resume its optimizer too, make the module with alignment=1.

    Raises:
        ConfigError: a name, value or size in the configuration is invalid.
        ArgumentError: a number of dims or the alignment is invalid.
        DtypeError: `dtype`, or the module's dtype, is none of these; a complex input.
        ShapeError: the input has another number of dims.

    Example:
        >>> encoding = {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 12}
        >>> network = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2}
        >>> model = ts.nn.NetworkWithInputEncoding(2, 3, encoding, network)
        >>> model(torch.rand(100, 2)).shape
        torch.Size([100, 3])
    """

    def __init__(
        self,
        n_input_dims: int,
        n_output_dims: int,
        encoding_config: ConfigLike = None,
        network_config: ConfigLike = None,
        seed: int = 1337,
        *,
        dtype: torch.dtype | None = None,
        engine: str | None = None,
        alignment: int = ALIGNMENT,
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        n_input_dims = read_positive("n_input_dims", kind, n_input_dims)
        n_output_dims = read_positive("n_output_dims", kind, n_output_dims)
        alignment = read_positive("alignment", kind, alignment)
        check_dtype(kind, dtype or torch.float32)
        self.n_input_dims, self.n_output_dims = n_input_dims, n_output_dims
        self.seed, self.engine, self.alignment = read_seed(kind, seed), engine, alignment
        self.encoding_section = resolve_section("encoding", encoding_config)
        self.network_section = resolve_section("network", network_config)
        with torch.device("cpu"):  # computes sizes; tensors move to the device of the input later
            self.encoder = build_encoder(self.encoding_section, n_input_dims)
        columns: Columns = [None] * self.encoder.n_output_dims
        if alignment > 1:
            columns = find_columns(self.encoder, self.encoding_section, alignment)
        self.mlp = Mlp.from_section(self.network_section, len(columns), n_output_dims, alignment)
        self._register(columns, dtype or torch.float32, self.mlp, self.encoder)

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the network on inputs (..., n_input_dims), and return outputs (..., n_output_dims)."""
        x = prepare_input(self, x)
        if is_distributed([x, self.params]):
            return forward_on_parts(self, x)
        *pieces, table = widen(self.params).split([*self.mlp.sizes, self.encoder.n_params])
        features = self.encoder(x.reshape(-1, self.n_input_dims), table, self.engine)
        y = round_to(self.mlp(features, pieces, self.columns, self.constants), self.params.dtype)
        return reshape_result(y, (*x.shape[:-1], self.n_output_dims))

    def extra_repr(self) -> str:
        """Return the sizes and the configuration, for `repr`."""
        encoding = self.encoding_section.otype
        module = _describe_module(self.network_section, self)
        return f"{self.n_input_dims}, {self.n_output_dims}, encoding={encoding!r}, {module}"


class Network(_PaddedModule):
    """A small network, described by a tiny-cuda-nn configuration.

    With matrices W and activations f:   y = f_out(W_n f(... W_2 f(W_1 x)))

    FullyFusedMLP and CutlassMLP (MLP) are equal here; any `n_neurons`. Activations: None, ReLU, LeakyReLU, SiLU,
    Exponential, Sine, Sigmoid, Squareplus, Softplus, Tanh; formulas in `tinsmith.reference.activation`.

    Args:
        n_input_dims: number of input dims.
        n_output_dims: number of output dims.
        network_config: the configuration, as a mapping, a JSON string or a path; None: all defaults.
        seed: seed of the initial weights: Xavier's, or SIREN's if the activation is Sine.
        dtype: dtype of the weights and the result: float32, the default, float64, float16 or bfloat16. `.double()`,
            `.half()` and so on change it. Half precision is computed in float32, and rounded once, at the end.
        alignment: the widths of input and output are padded to multiples of this number. With 16, as in tiny-cuda-nn,
            `params` has the layout of tiny-cuda-nn's module, and this one loads a `state_dict` saved by it. The columns
            that pad the input contain ones, so their weights act as a bias of the first layer. The output's added rows
            are never read. 1: no padding, so no bias.

    Attributes:
        n_input_dims, n_output_dims: as passed.
        native_output_dims: rows of the last matrix: `n_output_dims`, padded to a multiple of `alignment`.
        params: all weights, flat: the matrices in order, each [out, in] row by row.
        matrix_shapes: the shapes (out, in) of these matrices.

    The input (..., n_input_dims) may have any real dtype, and is cast to that of the computation; the output is
    (..., n_output_dims). Differentiable in the input and in `params`, any number of times, in both modes. Under
    `torch.autocast` the matrix products run in half precision, as those of `torch.nn.Linear` do.

    A `state_dict` saved with alignment=1, the default of version 0.1.0, is padded with zeros when it is loaded: the
    function stays the same. To resume its optimizer too, make the module with alignment=1.

    Raises:
        ConfigError: a name or value in the configuration is invalid.
        ArgumentError: a number of dims or the alignment is invalid.
        DtypeError: `dtype`, or the module's dtype, is none of these; a complex input.
        ShapeError: the input has another number of dims.

    Example:
        >>> network = ts.nn.Network(3, 1, {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2})
        >>> network(torch.rand(100, 3)).shape
        torch.Size([100, 1])
        >>> network.matrix_shapes
        ((16, 16), (16, 16), (16, 16))
        >>> ts.nn.Network(3, 1, {"n_neurons": 16, "n_hidden_layers": 2}, alignment=1).matrix_shapes
        ((16, 3), (16, 16), (1, 16))
    """

    def __init__(
        self,
        n_input_dims: int,
        n_output_dims: int,
        network_config: ConfigLike = None,
        seed: int = 1337,
        *,
        dtype: torch.dtype | None = None,
        alignment: int = ALIGNMENT,
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        n_input_dims = read_positive("n_input_dims", kind, n_input_dims)
        n_output_dims = read_positive("n_output_dims", kind, n_output_dims)
        alignment = read_positive("alignment", kind, alignment)
        check_dtype(kind, dtype or torch.float32)
        self.n_input_dims, self.n_output_dims = n_input_dims, n_output_dims
        self.seed, self.alignment = read_seed(kind, seed), alignment
        self.network_section = resolve_section("network", network_config)
        filling = [1.0] * (-n_input_dims % alignment)
        self.mlp = Mlp.from_section(self.network_section, n_input_dims + len(filling), n_output_dims, alignment)
        self._register([None] * n_input_dims + filling, dtype or torch.float32, self.mlp)

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the network on inputs (..., n_input_dims), and return outputs (..., n_output_dims)."""
        x = prepare_input(self, x)
        if is_distributed([x, self.params]):
            return forward_on_parts(self, x)
        pieces = widen(self.params).split(self.mlp.sizes)
        return round_to(self.mlp(x, pieces, self.columns, self.constants), self.params.dtype)

    def extra_repr(self) -> str:
        """Return the sizes and the configuration, for `repr`."""
        return f"{self.n_input_dims}, {self.n_output_dims}, {_describe_module(self.network_section, self)}"


def _pad_saved_params(module: _PaddedModule, state_dict: dict[str, Any], prefix: str) -> None:
    """Pad parameters in a state dict that were saved without padding."""
    name = f"{prefix}params"
    saved, mlp, own = state_dict.get(name), module.mlp, module.own_columns
    missing = sum(mlp.sizes) - sum(mlp.remove_padding(len(own)).sizes)
    if missing and isinstance(saved, Tensor) and saved.shape == (module.params.numel() - missing,):
        state_dict[name] = mlp.pad(saved, own)


def _describe_module(section: Section, module: Network | NetworkWithInputEncoding) -> str:
    words = ", ".join(f"{key}={value!r}" for key, value in section.options.items())
    return f"otype={section.otype!r}, {words}, n_params={module.params.numel()}"
