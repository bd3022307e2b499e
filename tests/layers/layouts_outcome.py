"""What a layer makes of a layout and a way to ask for gradients, in a few words: a cell of docs/guide/layouts.md."""

from types import ModuleType
from typing import Any

import torch

import tinsmith as ts
from layers.layouts import Declaration, NotWritable, Row, Site


def outcome(lang: ModuleType, row: Row, declaration: Declaration) -> str:
    """Return a few words: "right", "no gradient", "no gradient for x", "refused: ...", "engine: ...", "WRONG: ..."."""
    site = Site(lang, row)
    try:
        declaration(site)
        site.finish()
        return _told(_layer(lang, site), row)
    except NotWritable:
        return "cannot be written"
    except ts.TinsmithError as refusal:
        return f"refused: {first_line(refusal)}"
    except Exception as error:  # noqa: BLE001  # whatever an engine raises is what this cell is about
        return f"engine: {type(error).__name__} {first_line(error)}".strip()


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def _layer(lang: ModuleType, site: Site) -> Any:
    x, w, y = (site.fields[name] for name in "xwy")
    layer = ts.EmptyTin().register_input_field(x, name="x").register_input_field(w, name="w")
    layer.register_output_field(y, name="y")
    if site.later is not None:
        site.later()
    kernel = _of_one(lang) if site.row.shape == () else _of_many(lang)
    return layer.register_kernel(kernel, x, w, y).finish()


def _of_many(lang: ModuleType) -> Any:
    @lang.kernel
    def product(x: lang.template(), w: lang.template(), y: lang.template()):
        for place in lang.grouped(x):
            y[place] = x[place] * x[place] * w[place]

    return product


def _of_one(lang: ModuleType) -> Any:
    @lang.kernel
    def product(x: lang.template(), w: lang.template(), y: lang.template()):
        for _ in range(1):
            y[None] = x[None] * x[None] * w[None]

    return product


def _told(layer: Any, row: Row) -> str:
    """Run two calls before two backward passes, so that one cannot use the fields of the other."""
    calls = [[torch.randn(row.shape, dtype=torch.float64).requires_grad_() for _ in "xw"] for _ in range(2)]
    results = [layer(x, w) for x, w in calls]
    for (x, w), y in zip(calls, results, strict=True):
        if not torch.allclose(y, x * x * w):
            return "WRONG: values"
    if not any(y.requires_grad for y in results):
        return "no gradient"
    outcomes = {_told_of_gradient(x, w, y) for (x, w), y in zip(calls, results, strict=True)}
    return " and ".join(sorted(outcomes))


def _told_of_gradient(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> str:
    cotangent = torch.randn_like(y)
    gradients = torch.autograd.grad(y, [x, w], cotangent, allow_unused=True)
    truth = torch.autograd.grad(x * x * w, [x, w], cotangent)
    missing = [name for name, gradient in zip("xw", gradients, strict=True) if gradient is None]
    for gradient, right in zip(gradients, truth, strict=True):
        if gradient is not None and not torch.allclose(gradient, right):
            return "WRONG: gradient"
    return f"no gradient for {', '.join(missing)}" if missing else "right"
