"""What we lean on in torch's private parts: a release that changes it must fail here, by name."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tinsmith import tracing
from tinsmith.tracing import _torch_state as _tracing


def failed():
    return {probe.name: probe.detail for probe in tracing.torch_probes() if not probe.ok}


def test_all_probes_of_torch_hold():
    assert not failed(), "a release of torch changed what tinsmith leans on"
    assert {probe.package for probe in tracing.torch_probes()} == {"torch"}


def test_a_batch_of_the_older_vmap_is_taken_apart_in_any_thread():
    """The backward pass of a GPU's tensors is in a thread of its own, which does not know how deep vmap is."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, cotangent):
            with ThreadPoolExecutor(1) as pool:
                level, (whole,), (dim,) = pool.submit(_tracing.unwrap_legacy_vmap, [cotangent]).result()
            assert dim == 0 and not _tracing.has_legacy_batch([whole])
            return _tracing.wrap_legacy_vmap(2 * whole, level)

    x = torch.ones(3, requires_grad=True)
    for count in (1, 2, 3):
        cotangents = torch.rand(count, 3)
        (slope,) = torch.autograd.grad(Double.apply(x), x, cotangents, is_grads_batched=True)
        assert torch.equal(slope, 2 * cotangents)


def raises(*_):
    raise RuntimeError("must override the setup_context staticmethod")


def applied_publicly(_, *arguments):
    """Apply a Function of the public kind, as with `torch.library.register_autograd`."""

    class Public(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, cotangent):
            (x,) = ctx.saved_tensors
            return 3 * x * x * cotangent

    return Public.apply(*arguments)


GRADIENT = "a Function applied at one level of torch.func has its gradient"
TANGENT = "a Function applied at one level of torch.func has its tangent"
NESTED = "a Function applied at one level works inside outer levels"

FAULTS = [
    ("is_plain", lambda: True, "an active dispatch mode is detected", "no memory to give it"),
    ("is_plain", lambda: True, "active autocast is detected", "half-precision"),
    ("is_transformed", lambda: False, "an active transform of torch.func is detected", "wrong gradients"),
    ("has_modes", lambda: False, "an active dispatch mode is detected", "fake tensors"),
    ("has_forward_mode", lambda: False, "an active forward-mode level is detected", "tangent"),
    ("apply_at_one_level", raises, GRADIENT, "torch.compile of them"),
    ("apply_at_one_level", raises, TANGENT, "jacfwd"),
    ("apply_at_one_level", applied_publicly, GRADIENT, "setup_context"),
    ("dispatch_below_autograd", contextlib.nullcontext, NESTED, "hessian"),
    (
        "get_unchecked_apply",
        raises,
        "a Function applied without a check for transforms has its gradient",
        "every plain call",
    ),
    ("has_legacy_batch", lambda _: False, "a batch of is_grads_batched=True can be unpacked", "vectorize=True"),
    ("wrap_legacy_vmap", raises, "a batch of is_grads_batched=True can be unpacked", "setup_context"),
    (
        "suspend_transforms",
        contextlib.nullcontext,
        "tensors can be made outside transforms and inference mode",
        "first call",
    ),
    ("is_fake", lambda _: False, "a tensor of FakeTensorMode is recognized", "ends the process"),
    (
        "disable_torch_function",
        contextlib.nullcontext,
        "queries of a tensor's properties can be hidden from modes",
        "before it sees the op",
    ),
    ("is_jit_traced", lambda: False, "torch.jit.trace is detected", "as constants"),
    ("count_transforms", lambda: (0, 0, 0), "levels of torch.func are listed by kind", "scan"),
    ("assume", lambda _: None, "an assumption for torch.compile is checked", "no memory for"),
    (
        "explain_missing_operators",
        lambda *_: None,
        "a missing operator can raise an error of our own",
        "does not say why",
    ),
    ("constant_when_traced", lambda f: f, "a function marked constant is not traced", "breaks the graph"),
]


@pytest.mark.parametrize(("name", "fault", "fact", "words"), FAULTS)
def test_a_failing_probe_says_what_breaks(monkeypatch, name, fault, fact, words):
    monkeypatch.setattr(_tracing, name, fault)
    assert words in failed()[fact]
