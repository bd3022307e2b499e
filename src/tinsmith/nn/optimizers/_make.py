"""`make_optimizer`: an optimizer from a section and parameters. `_MAKERS` has one row for each `otype`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..._errors import ConfigError, refusal
from ..config import Section, resolve_section
from ._adam import Adam, EntrywiseAdam, Extras
from ._library import Borrowed, Lookahead, Shampoo, import_from_library
from ._slots import Divided, Params, Piece, Slot, list_slots, split_slot
from ._wrappers import EMA, Average, Batched, Composite, ExponentialDecay


def make_optimizer(
    params: Params, config: Section | Mapping[str, Any] | str | Path | None = None
) -> torch.optim.Optimizer:
    """Create the optimizer that a configuration describes, for these parameters.

    Adam and SGD are torch's, fused; Novograd, Shampoo and Lookahead come from pytorch_optimizer
    (the extra `nn`). Its Shampoo ignores `cg_on_momentum`: L and R are always computed from the gradient.
    Adam with options that torch's lacks, and Adam on parameters other than matrices (where by default it skips entries
    whose gradient is 0), follow tiny-cuda-nn's formula entry by entry.

    Args:
        params: a module; or tensors; or groups such as `{"params": [...], "matrix": False}`. Whether a parameter is a
            matrix of a network (and not the table of an encoding) is given by `matrix`, by a module's attribute
            `holds_matrices`, or else by having at least two dims. A module with one flat parameter may have an
            attribute `matrix_shapes`, the shapes of the matrices at its start; each matrix is then optimized
            separately.
        config: the optimizer's part of a configuration, or its `Section`; None for an Adam with all defaults.
            In a Composite, `n_params_to_optimize` counts elements in the parameters' order, and each part
            starts and ends with a whole parameter; one part may leave it out and gets the remaining ones.

    Returns:
        An Optimizer; for the weights of EMA, Average and Lookahead see `use_averages`.

    Raises:
        ConfigError: the configuration is invalid, needs a missing package, or does not fit the parameters.
        ArgumentError: there are no parameters.

    Example:
        >>> network = torch.nn.Linear(2, 3)
        >>> config = {"otype": "EMA", "nested": {"otype": "Adam", "learning_rate": 0.01}}
        >>> optimizer = ts.nn.make_optimizer(network, config)
        >>> optimizer.param_groups[0]["lr"]
        0.01
    """
    section, given = resolve_section("optimizer", config), list_slots(params)
    pieces: list[Piece] = []
    parts: list[Slot] = []
    for slot in given:
        own = split_slot(slot) if slot.matrix_shapes else []
        pieces += own
        parts += [piece.slot for piece in own] or [slot]
    optimizer = build_optimizer(section, parts)
    return Divided(optimizer, pieces) if pieces else optimizer


def build_optimizer(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    """Build the optimizer that a section describes, over the parameters in these slots."""
    return _MAKERS[section.otype](section, given)


def _build_adam(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    o = section.options
    betas, epsilon = (o["beta1"], o["beta2"]), o["epsilon"]
    names = ("relative_decay", "absolute_decay", "adabound", "clipping_magnitude", "gradient_clipping_magnitude")
    asked = {name: o[name] for name in names}
    by_extras: dict[Extras, list[dict[str, Any]]] = {}
    for matrix, group in _divide_adam_parameters(o, given):
        extras = Extras(**asked, skip_zero_grad=o["skip_zero_grad_non_matrix_params"] and not matrix)
        by_extras.setdefault(extras, []).append(group)
    parts = [
        EntrywiseAdam(groups, betas, epsilon, extras) if extras else Adam(groups, betas, epsilon)
        for extras, groups in by_extras.items()
    ]
    if not parts:
        rows = [("optimize_matrix_params", str(o["optimize_matrix_params"]).lower())]
        rows += [("optimize_non_matrix_params", str(o["optimize_non_matrix_params"]).lower())]
        remedy = "Set at least one of the two to true."
        raise ConfigError(refusal(f"`{section.where}` leaves Adam no parameter to optimize", rows, remedy))
    return parts[0] if len(parts) == 1 else Composite(*parts)


def _divide_adam_parameters(o: Mapping[str, Any], given: Sequence[Slot]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield Adam's parameter groups: one for the matrices (True), one for other parameters (False). Skip empty ones."""
    rate, factor = o["learning_rate"], o["non_matrix_learning_rate_factor"]
    for matrix, wanted, lr, l2_reg in (
        (True, o["optimize_matrix_params"], rate, o["l2_reg"]),
        (False, o["optimize_non_matrix_params"], rate * factor, o["non_matrix_l2_reg"]),
    ):
        parameters = [slot.parameter for slot in given if slot.matrix == matrix]
        if parameters and wanted:
            yield matrix, {"params": parameters, "lr": lr, "weight_decay": l2_reg}


def _build_sgd(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    o = section.options
    return torch.optim.SGD(_list_parameters(given), lr=o["learning_rate"], weight_decay=o["l2_reg"], fused=True)


def _build_novograd(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    o = section.options
    betas = (o["beta1"], o["beta2"])
    kind = import_from_library(section, "NovoGrad")
    library = kind(_list_parameters(given), lr=o["learning_rate"], betas=betas, eps=o["epsilon"], grad_averaging=True)
    return Borrowed(library, 0.0, o["relative_decay"], o["absolute_decay"])


def _build_shampoo(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    return Shampoo(section, _list_parameters(given))


def _build_lookahead(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    kind = import_from_library(section, "Lookahead")
    nested = build_optimizer(section.nested[0], given)
    return Lookahead(nested, kind(nested), section.options["alpha"], section.options["n_steps"])


def _build_composite(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
    shares = _divide_parameters(section, given)
    return Composite(
        *(build_optimizer(part, share) for part, share in zip(section.nested, shares, strict=True) if share)
    )


def _make_maker(wrapper: Callable[..., torch.optim.Optimizer], **names: str) -> _Maker:
    """Return a function that builds a wrapper. `names` maps each argument of `wrapper` to the option with its value."""

    def build_wrapper(section: Section, given: Sequence[Slot]) -> torch.optim.Optimizer:
        arguments = {argument: section.options[option] for argument, option in names.items()}
        return wrapper(build_optimizer(section.nested[0], given), **arguments)

    return build_wrapper


_Maker = Callable[[Section, Sequence[Slot]], torch.optim.Optimizer]

_MAKERS: dict[str, _Maker] = {
    "Adam": _build_adam,
    "SGD": _build_sgd,
    "Novograd": _build_novograd,
    "Shampoo": _build_shampoo,
    "Lookahead": _build_lookahead,
    "Composite": _build_composite,
    "EMA": _make_maker(EMA, decay="decay", full_precision="full_precision"),
    "Average": _make_maker(Average, n_samples="n_samples"),
    "Batched": _make_maker(Batched, multiplier="batch_size_multiplier"),
    "ExponentialDecay": _make_maker(
        ExponentialDecay, base="decay_base", start="decay_start", end="decay_end", interval="decay_interval"
    ),
}


def _list_parameters(given: Sequence[Slot]) -> list[torch.Tensor]:
    return [slot.parameter for slot in given]


def _divide_parameters(section: Section, given: Sequence[Slot]) -> list[list[Slot]]:
    """Divide the parameters among the parts of a Composite, in order.

    Raises:
        ConfigError: the parts' numbers of parameters do not divide them into whole parameters.
    """
    sizes = [part.options["n_params_to_optimize"] for part in section.nested]
    total = sum(slot.size for slot in given)
    rest = total - sum(size for size in sizes if size is not None)
    left, shares = list(given), []
    for size in sizes:
        wanted, share = rest if size is None else size, list[Slot]()
        while left and wanted >= left[0].size and wanted > 0:
            wanted -= left[0].size
            share.append(left.pop(0))
        if wanted:
            raise ConfigError(_explain_uneven(section, sizes, given))
        shares.append(share)
    if left:
        raise ConfigError(_explain_uneven(section, sizes, given))
    return shares


def _explain_uneven(section: Section, sizes: Sequence[int | None], given: Sequence[Slot]) -> str:
    counts = [slot.size for slot in given]
    rows = [
        ("got", ", ".join("the rest" if size is None else str(size) for size in sizes)),
        ("parameters", " + ".join(map(str, counts[:12])) + (" + ..." if counts[12:] else "") + f" = {sum(counts)}"),
    ]
    headline = f"`{section.where}.nested[...].n_params_to_optimize` does not divide the parameters"
    return refusal(
        headline,
        rows,
        "Choose sizes that split the list of parameters between whole tensors and add up to all of them.",
    )
