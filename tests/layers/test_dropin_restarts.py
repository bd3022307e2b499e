"""Tubes outlive the engine's restarts, as Stannum's do: they hold no field that would go with it."""

import contextlib
import io
import os
import subprocess
import sys

import pytest
import torch

from support.dropin import assert_agree, make_leaf, side_by_side
from support.engine_keeper import load_quietly

F64 = torch.float64

BEFORE_INIT = """\
import importlib, torch
lang, layers = importlib.import_module({engine!r}), importlib.import_module({library!r})

@lang.kernel
def square(x: lang.template(), y: lang.template()):
    for i in x:
        y[i] = x[i] * x[i]

tube = layers.Tube().register_input_tensor((layers.AnyDim,), torch.float64, "x")
tube = tube.register_output_tensor(lambda name, dims, shapes: shapes["x"], torch.float64, "y", True)
tube = tube.register_kernel(square, ["x", "y"]).finish()
lang.init(arch=lang.cpu)
x = torch.tensor([3.0, 5.0], dtype=torch.float64, requires_grad=True)
tube(x).sum().backward()
assert x.grad.tolist() == [6.0, 10.0], x.grad
print("right")
"""


def restart(lang):
    with contextlib.redirect_stdout(io.StringIO()):  # Quadrants says that it starts, whatever the log level
        lang.reset()
        lang.init(arch=lang.cpu, default_fp=lang.f64, log_level=lang.WARN)


class Plain:
    """What a FieldManager must do, with the fields of `lang`; a base that the library gives comes besides."""

    lang = None

    def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
        made = self.lang.field(self.lang.f64, needs_grad=needs_grad)
        members = (made, made.grad) if needs_grad else (made,)
        fields_builder.dense(self.lang.i, concrete_tensor_shape).place(*members)
        return made

    def to_tensor(self, field):
        return field.to_torch()

    def grad_to_tensor(self, grad_field):
        return grad_field.to_torch()

    def from_tensor(self, field, tensor):
        field.from_torch(tensor)

    def grad_from_tensor(self, grad_field, tensor):
        grad_field.from_torch(tensor)


@pytest.mark.thinned(4)
@side_by_side
@pytest.mark.parametrize("managed", [False, True], ids=["on tensors", "on fields"])
def test_a_tube_is_used_again_after_a_restart(layers, lang64, managed):
    @lang64.kernel
    def square(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i] * x[i]

    manager = type("Manager", (Plain, layers.FieldManager), {"lang": lang64})() if managed else None
    tube = layers.Tube().register_input_tensor((3,), F64, "x", field_manager=manager)
    tube = tube.register_output_tensor((3,), F64, "y", True).register_kernel(square, ["x", "y"]).finish()
    for _ in range(3):
        x = make_leaf(3)
        assert_agree(tube(x), x**2, [x])
        restart(lang64)


@pytest.mark.parametrize(
    ("library", "engine"), [("tinsmith", "taichi"), ("tinsmith", "quadrants"), ("stannum", "taichi")]
)
def test_a_tube_is_registered_before_the_engine_starts(library, engine, tmp_path):
    if library == "stannum":
        pytest.importorskip("stannum", reason='pip install ".[peers]"')
    load_quietly(engine)  # sets what keeps the child quiet too
    script = tmp_path / "before_init.py"
    script.write_text(BEFORE_INIT.format(engine=engine, library=library), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("right\n")
