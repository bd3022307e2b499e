"""Each mode of an op beside its reference: what it gives, and what is right, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from types import ModuleType
from typing import Any

import torch

import tinsmith as ts
from fuzz._grammar import Program
from fuzz._reference import Reference, Sample, Tensors, Weights, draw_sample, draw_weights, dtype_of
from fuzz._verdict import kernels_of
from fuzz._wide import INTEGERS, spec_of

SAMPLES = 2
"""In a batch."""

Pairs = Iterator[tuple[str, torch.Tensor, torch.Tensor]]
"""What is compared: its name, what the mode gives, what is right."""


class Trial:
    """One program with its arguments, and what it gives in each mode."""

    def __init__(
        self, program: Program, lang: ModuleType, dtype: torch.dtype = torch.float64, engine: str | None = None
    ) -> None:
        self.dtype, self.engine, self.lang = dtype, engine, lang
        if dtype == torch.float32:
            program = replace(program, source=program.source.replace("lang.f64", "lang.f32"))
        self.program = program
        given, returned = (re.findall(r"(\w+)\[", side) for side in program.spec.split("->"))
        self.integers = tuple(name for name in given if name in INTEGERS)
        self.floats = tuple(name for name in given if name not in INTEGERS)
        self.outputs = tuple(returned)
        self.returned = tuple(name for name in (*returned, *program.updated) if name != "c")
        self.weights: Weights = draw_weights(program.seed, self.returned, self.floats).rounded(dtype)
        self.batched = self._batched()
        self.samples = [self._sample(number) for number in range(SAMPLES)]

    def make_again(self) -> Trial:
        """Return the same trial with nothing compiled yet."""
        return Trial(self.program, self.lang, self.dtype, self.engine)

    def _batched(self) -> tuple[str, ...]:
        """Return inputs that differ from sample to sample: `x` and some others."""
        generator = torch.Generator().manual_seed(self.program.seed + 2_000_003)
        names = (*self.floats, *self.integers)
        kept = (torch.rand(len(names), generator=generator) < 0.7).tolist()
        always = ("x", *self.program.updated)
        return tuple(name for name, keep in zip(names, kept, strict=True) if keep or name in always)

    def _sample(self, number: int) -> Sample:
        first, one = (draw_sample(self.program.seed + 7_000_003 * at, self.floats, self.integers) for at in (0, number))
        floats = {name: (one if name in self.batched else first).floats[name] for name in self.floats}
        integers = {name: (one if name in self.batched else first).integers[name] for name in self.integers}
        return Sample(floats, integers, first.a).rounded(self.dtype)

    # Ops ----------------------------------------------------------------------------------------

    @cached_property
    def _kernels(self) -> list[Any]:
        return kernels_of(self.program, self.lang)

    @cached_property
    def op(self) -> Any:
        """The program as an op of single samples.

        In most programs it is that of batches too: of no batch dims. So both share their gradients.
        """
        if self.engine == "python" and self.program.seed // 8 % 4:
            return self._batched_op
        return self._make_op(self.program.spec, self.program.scratch)

    @cached_property
    def _batched_op(self) -> Any:
        batched = (*self.batched, *self.outputs)
        spec = spec_of(self.program, [*self.floats, *self.integers], list(self.outputs), batched)
        scratch = None if self.program.scratch is None else self.program.scratch.replace("[", "[*b, ")
        return self._make_op(spec, scratch)

    def _make_op(self, spec: str, scratch: str | None) -> Any:
        options: dict[str, Any] = {"scratch": scratch, "adjoint": "source", "engine": self.engine, "order": "kernel"}
        if len(self._kernels) > 1:
            return ts.chain(spec, self._kernels, **options)
        return ts.op(spec, **options)(self._kernels[0])

    def _call(self, op: Any, floats: tuple[torch.Tensor, ...], integers: tuple[torch.Tensor, ...]) -> Tensors:
        arrays = {**dict(zip(self.floats, floats, strict=True)), **dict(zip(self.integers, integers, strict=True))}
        updated = {name: arrays[name].clone() for name in self.program.updated}
        result = op(**(arrays | updated), a=self.samples[0].a)
        # An op that only changes arguments in place returns these.
        results = () if not self.outputs else result if isinstance(result, tuple) else (result,)
        return {**dict(zip(self.outputs, results, strict=True)), **updated}

    def _function(self, floats: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return floating outputs of floating inputs, at the first sample's integers."""
        outputs = self._call(self.op, floats, tuple(self.samples[0].integers.values()))
        return tuple(outputs[name] for name in self.returned)

    def _loss(self, floats: tuple[torch.Tensor, ...], integers: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return self.weights.loss(self._call(self.op, floats, integers))

    # References ---------------------------------------------------------------------------------

    @cached_property
    def references(self) -> list[Reference]:
        """One a sample."""
        return [Reference(self.program, sample, self.weights) for sample in self.samples]

    def nudged(self, generator: torch.Generator) -> list[Reference]:
        """Return the references for inputs whose last digits differ."""
        return [Reference(self.program, sample.nudged(generator), self.weights) for sample in self.samples]

    # Modes --------------------------------------------------------------------------------------

    def _first(self) -> tuple[torch.Tensor, ...]:
        floats = self.samples[0].floats
        return tuple(one.to(dtype_of(name, self.dtype), copy=True) for name, one in floats.items())

    def _stacked(self) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Return floats and integers of the batch."""

        def together(name: str, kind: str) -> torch.Tensor:
            ones = [getattr(sample, kind)[name] for sample in self.samples]
            return torch.stack(ones) if name in self.batched else ones[0].clone()

        return tuple(together(name, "floats").to(dtype_of(name, self.dtype)) for name in self.floats), tuple(
            together(name, "integers") for name in self.integers
        )

    def _values(self, outputs: Tensors, wanted: list[Reference]) -> Pairs:
        for name, one in outputs.items():
            values = [reference.outputs[name] for reference in wanted]
            yield f"value of {name}", one.detach(), torch.stack(values) if one.dim() > values[0].dim() else values[0]

    def _pulled(self, by_name: Tensors, leaves: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return gradients of the leaves, where some outputs have a cotangent."""
        ends = [by_name[name] for name in self.weights.chosen]
        weights = [self.weights.linear[name].to(self.dtype) for name in self.weights.chosen]
        given = [one.expand_as(end) for one, end in zip(weights, ends, strict=True)]
        reached = [(end, one) for end, one in zip(ends, given, strict=True) if end.requires_grad]
        if not reached:
            return tuple(torch.zeros_like(leaf) for leaf in leaves)
        outputs, cotangents = zip(*reached, strict=True)
        return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, materialize_grads=True)

    def backward(self) -> Pairs:
        """Return values, and gradients where some outputs have a cotangent."""
        leaves = tuple(one.requires_grad_() for one in self._first())
        outputs = self._call(self.op, leaves, tuple(self.samples[0].integers.values()))
        yield from self._values(outputs, self.references[:1])
        for name, one in zip(self.floats, self._pulled(outputs, leaves), strict=True):
            yield f"gradient of {name}", one, self.references[0].of_chosen[name]

    def batch(self) -> Pairs:
        """Compute the same with batch dims in the spec."""
        floats, integers = self._stacked()
        leaves = tuple(one.requires_grad_() for one in floats)
        outputs = self._call(self._batched_op, leaves, integers)
        yield from self._values(outputs, self.references)
        for name, one in zip(self.floats, self._pulled(outputs, leaves), strict=True):
            wanted = torch.stack([reference.of_chosen[name] for reference in self.references])
            yield f"gradient of {name}", one, wanted if name in self.batched else wanted.sum(0)

    def _in_dims(self) -> Any:
        return tuple(
            tuple(0 if name in self.batched else None for name in names) or None
            for names in (self.floats, self.integers)
        )

    def vmap(self) -> Pairs:
        """Return values of a batch."""
        function: Callable[..., Any] = lambda floats, integers: self._call(self.op, floats, integers)  # noqa: E731
        outputs = torch.func.vmap(function, self._in_dims())(*self._stacked())
        yield from self._values(outputs, self.references)

    def vmap_of_grad(self) -> Pairs:
        """Return gradients of each sample's own loss."""
        gradients = torch.func.vmap(torch.func.grad(self._loss), self._in_dims())(*self._stacked())
        for name, one in zip(self.floats, gradients, strict=True):
            yield f"gradient of {name}", one, torch.stack([reference.of_loss[name] for reference in self.references])

    def jacrev(self) -> Pairs:
        """Compute the Jacobian, contracted with weights of the outputs."""
        rows = torch.func.jacrev(self._function)(self._first())
        for place, name in enumerate(self.floats):
            total = sum(
                torch.tensordot(self.weights.linear[output], row[place].double(), self.weights.linear[output].dim())
                for output, row in zip(self.returned, rows, strict=True)
            )
            yield f"Jacobian by {name}", torch.as_tensor(total), self.references[0].of_all[name]

    def jvp(self) -> Pairs:
        """Return tangents, contracted with weights of outputs."""
        direction = tuple(self.weights.direction[name].to(dtype_of(name, self.dtype)) for name in self.floats)
        values, tangents = torch.func.jvp(lambda *floats: self._function(floats), self._first(), direction)
        yield from self._values(dict(zip(self.returned, values, strict=True)), self.references[:1])
        pairs = zip(self.returned, tangents, strict=True)
        tangent = sum((self.weights.linear[name] * one).sum() for name, one in pairs)
        of_all = self.references[0].of_all
        wanted = sum((of_all[name] * one).sum() for name, one in self.weights.direction.items())
        yield "tangents", torch.as_tensor(tangent), torch.as_tensor(wanted)

    def hessian(self) -> Pairs:
        """Compute the loss's Hessian, contracted with the direction."""
        integers = tuple(self.samples[0].integers.values())
        rows = torch.func.hessian(lambda floats: self._loss(floats, integers))(self._first())
        for place, name in enumerate(self.floats):
            parts = [
                torch.tensordot(rows[place][other].double(), one, dims=one.dim())
                for other, one in enumerate(self.weights.direction[by] for by in self.floats)
            ]
            yield f"Hessian by {name}", torch.stack(parts).sum(0), self.references[0].curvature[name]

    def compiled(self) -> Pairs:
        """Return the same as `backward` for a function that torch compiles with the backend `aot_eager`."""
        torch.compiler.reset()
        leaves = tuple(one.requires_grad_() for one in self._first())
        function = torch.compile(self.op, backend="aot_eager", fullgraph=True)
        outputs = self._call(function, leaves, tuple(self.samples[0].integers.values()))
        yield from self._values(outputs, self.references[:1])
        for name, one in zip(self.floats, self._pulled(outputs, leaves), strict=True):
            yield f"gradient of {name}", one, self.references[0].of_chosen[name]


MODES: dict[str, Callable[[Trial], Pairs]] = {
    "backward": Trial.backward,
    "*b": Trial.batch,
    "vmap": Trial.vmap,
    "vmap(grad)": Trial.vmap_of_grad,
    "jacrev": Trial.jacrev,
    "jvp": Trial.jvp,
    "hessian": Trial.hessian,
    "compile": Trial.compiled,
}
"""How an op is used, in the order in which they are tried."""

COMPILED_EVERY = 5
"""Of so many seeds one is tried in the mode `compile`: torch's own tracing takes longer than all other modes."""


def modes_of(seed: int) -> list[str]:
    """Return the modes that a campaign tries for a seed."""
    return [mode for mode in MODES if mode != "compile" or seed % COMPILED_EVERY == 0]
