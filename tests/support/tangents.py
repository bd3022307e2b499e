"""A kernel's tangent by the pass, and by torch's forward mode through the interpreted kernel."""

from __future__ import annotations

import linecache
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from support import random_nests
from support.interpreted import interpret
from support.roundtrip import lower_kernel
from tinsmith.codegen import build, print_kernel
from tinsmith.engines import DTYPES, array_text, of_kernel
from tinsmith.ir import nodes, types
from tinsmith.passes import evaluate, generate_tangent
from tinsmith.passes.tangent import Tangent

DOUBLE = types.Defaults("f64", "i32")
Tensors = Mapping[str, torch.Tensor]


def lower_with_arguments(
    kernel: Any, arguments: Sequence[Any]
) -> tuple[nodes.Kernel, dict[str, torch.Tensor], dict[str, Any]]:
    """Return a kernel's IR, arrays and scalar arguments."""
    lowering = lower_kernel(kernel, *arguments)
    named = {p.name: one for p, one in zip(of_kernel(kernel).parameters(kernel), arguments, strict=True)}
    fields = {name: field.to_torch() for name, field in lowering.fields.items()}
    arrays = {name: named[name] for name in lowering.kernel.arrays if name in named}
    return lowering.kernel, {**arrays, **fields}, {name: named[name] for name in lowering.kernel.arguments}


def build_nest(lang: Any, seed: int) -> Any:
    """Build a random nest as a kernel of x, w, k, s, y and z."""
    source = random_nests.Writer(random.Random(seed)).source()
    path = f"<random nest {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope = {"lang": lang, "__name__": "random_nests"}
    exec(compile(source, path, "exec", dont_inherit=True), scope)
    return lang.kernel(scope["kernel"])


def draw_nest_arguments(seed: int) -> tuple[torch.Tensor, ...]:
    """Draw the arguments of a random nest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(5, generator=generator, dtype=torch.float64) - 0.3
    w = torch.rand(5, 3, generator=generator, dtype=torch.float64) - 0.3
    k = torch.randperm(5, generator=generator).int()
    return x, w, k, *(torch.zeros(5, dtype=torch.float64) for _ in range(3))


def draw_directions(
    kernel: nodes.Kernel, arrays: Tensors, arguments: Mapping[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Draw a tangent for each float argument of a kernel."""
    generator = torch.Generator().manual_seed(seed)
    kinds = {name: array.type for name, array in kernel.arrays.items() if name not in kernel.cells}
    kinds |= {name: kind for name, (kind, _) in kernel.arguments.items()}
    given = {**arrays, **{name: torch.as_tensor(one) for name, one in arguments.items()}}
    return {
        name: torch.randn(given[name].shape, generator=generator, dtype=torch.float64)
        for name, kind in kinds.items()
        if types.is_float(kind)
    }


def list_tangent_arguments(
    made: Tangent, arrays: Tensors, arguments: Mapping[str, Any], moved: Tensors
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return arrays and arguments of the tangent's kernel."""
    beside = {of: one for of, one in made.companions.items() if one in made.kernel.arrays}
    tangents = {
        one: moved[of] if of in moved else torch.zeros_like(arrays[of], dtype=torch.float64)
        for of, one in beside.items()
    }
    kinds = {name: DTYPES[made.kernel.arrays[name].type] for name in made.scratch}
    scratch = {name: torch.zeros_like(arrays[of], dtype=kinds[name]) for name, of in made.scratch.items()}
    shapes = {name: one.shape for name, one in arrays.items()}
    scratch |= {
        name: torch.full(
            (evaluate(size, shapes, arguments),), float("nan"), dtype=DTYPES[made.kernel.arrays[name].type]
        )
        for name, size in made.room.items()
    }
    numbers = {one: moved[of] for of, one in made.companions.items() if one in made.kernel.arguments}
    return {**arrays, **tangents, **scratch}, {**arguments, **numbers}


def run_tangent(
    kernel: nodes.Kernel, arrays: Tensors, arguments: Mapping[str, Any], moved: Tensors
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Run the tangent's kernel; return the arrays and their tangents."""
    made = generate_tangent(kernel, frozenset(moved))
    after = interpret(made.kernel, *list_tangent_arguments(made, arrays, arguments, moved))
    beside = {of: one for of, one in made.companions.items() if one in made.kernel.arrays}
    return {name: after[name] for name in arrays}, {of: after[one] for of, one in beside.items()}


def run_tangent_in_torch(
    kernel: nodes.Kernel, arrays: Tensors, arguments: Mapping[str, Any], moved: Tensors
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Compute the tangents by torch's forward mode."""
    with forward_ad.dual_level():
        arrays, arguments = (
            {name: _dual(name, one, moved) for name, one in part.items()} for part in (arrays, arguments)
        )
        after = {name: forward_ad.unpack_dual(one) for name, one in interpret(kernel, arrays, arguments).items()}
    floating = {name: one for name, one in after.items() if one.primal.is_floating_point()}
    tangents = {
        name: torch.zeros_like(one.primal) if one.tangent is None else one.tangent for name, one in floating.items()
    }
    return {name: one.primal for name, one in after.items()}, tangents


def _dual(name: str, given: Any, moved: Tensors) -> Any:
    if name not in moved:
        return given
    return forward_ad.make_dual(torch.as_tensor(given, dtype=torch.float64), moved[name])


def assert_tangents_agree(
    kernel: nodes.Kernel, arrays: Tensors, arguments: Mapping[str, Any], still: Iterable[str] = (), **tolerance: float
) -> None:
    """Assert that the pass and torch give the same values and tangents; none where the pass has none."""
    moved = {name: one for name, one in draw_directions(kernel, arrays, arguments).items() if name not in set(still)}
    tolerance = {"rtol": 1e-9, "atol": 1e-10, **tolerance}
    values, tangents = run_tangent(kernel, arrays, arguments, moved)
    wanted_values, wanted = run_tangent_in_torch(kernel, arrays, arguments, moved)
    for name, one in wanted_values.items():
        torch.testing.assert_close(values[name], one, equal_nan=True, rtol=1e-12, atol=1e-13)
    for name, one in wanted.items():
        mine = tangents.get(name, torch.zeros_like(one))
        torch.testing.assert_close(
            mine, one, equal_nan=True, msg=lambda words, name=name: f"{name}: {words}", **tolerance
        )


def run_second_tangent(
    kernel: nodes.Kernel, arrays: Tensors, arguments: Mapping[str, Any], along: Tensors, then: Tensors
) -> dict[str, torch.Tensor]:
    """Compute the tangent of the tangent: how the derivative along one direction changes in the other."""
    once = generate_tangent(kernel, frozenset(along))
    twice = generate_tangent(once.kernel, frozenset(then))
    given, numbers = list_tangent_arguments(once, arrays, arguments, along)
    after = interpret(twice.kernel, *list_tangent_arguments(twice, given, numbers, then))
    return {of: after[twice.companions[one]] for of, one in once.companions.items() if one in twice.companions}


def run_second_tangent_in_torch(
    kernel: nodes.Kernel, arrays: Tensors, arguments: Mapping[str, Any], along: Tensors, then: Tensors
) -> dict[str, torch.Tensor]:
    """Compute the same from two gradients, one of the other."""
    leaves = {name: arrays[name].double().clone().requires_grad_() for name in along}
    with torch.enable_grad():
        after = interpret(kernel, {**arrays, **leaves}, arguments)
        return {name: _second(one, leaves, along, then) for name, one in after.items() if one.is_floating_point()}


def _second(one: torch.Tensor, leaves: Tensors, along: Tensors, then: Tensors) -> torch.Tensor:
    if not one.requires_grad:
        return torch.zeros_like(one)
    cotangent = torch.zeros_like(one).requires_grad_()
    pulled = torch.autograd.grad(one, list(leaves.values()), cotangent, create_graph=True, materialize_grads=True)
    pushed = sum((back * along[name]).sum() for name, back in zip(leaves, pulled, strict=True))
    if not pushed.requires_grad:
        return torch.zeros_like(one)
    (first,) = torch.autograd.grad(pushed, cotangent, create_graph=True, materialize_grads=True)
    if not first.requires_grad:
        return torch.zeros_like(one)
    seconds = [
        torch.autograd.grad(entry, list(leaves.values()), retain_graph=True, materialize_grads=True)
        for entry in first.reshape(-1)
    ]
    rows = [sum((back * then[name]).sum() for name, back in zip(leaves, row, strict=True)) for row in seconds]
    return torch.stack(rows).reshape(one.shape).detach()


def compile_kernel(made: nodes.Kernel, lang: Any, defaults: types.Defaults) -> Any:
    """Compile a kernel of the IR as a function of its arrays, then its arguments, both in their order."""
    arrays = {name: one for name, one in made.arrays.items() if name not in made.cells}
    annotations = {
        name: array_text(DTYPES[one.type], one.rank, one.element, "unsafe", False) for name, one in arrays.items()
    }
    annotations |= {name: f"_lang.{kind}" for name, (kind, _) in made.arguments.items()}
    function, _ = build(print_kernel(made, annotations, defaults), {"_lang": lang}, "printed")
    return lang.kernel(function)


def assert_compiled_agrees(
    kernel: nodes.Kernel,
    arrays: Tensors,
    arguments: Mapping[str, Any],
    lang: Any,
    defaults: types.Defaults,
    rtol: float = 1e-10,
) -> None:
    """Assert that the tangent's kernel gives the same compiled and interpreted."""
    moved = draw_directions(kernel, arrays, arguments)
    made = generate_tangent(kernel, frozenset(moved))
    given, numbers = list_tangent_arguments(made, arrays, arguments, moved)
    given = {name: one.to(DTYPES[made.kernel.arrays[name].type]) for name, one in given.items()}
    wanted = interpret(made.kernel, given, numbers, faithful=True)
    mine = {name: given[name].clone() for name in made.kernel.arrays if name not in made.kernel.cells}
    scalars = [
        numbers[name].item() if isinstance(numbers[name], torch.Tensor) else numbers[name]
        for name in made.kernel.arguments
    ]
    compile_kernel(made.kernel, lang, defaults)(*mine.values(), *scalars)
    for name, one in mine.items():
        torch.testing.assert_close(one, wanted[name].to(one.dtype), rtol=rtol, atol=rtol / 10, equal_nan=True)
