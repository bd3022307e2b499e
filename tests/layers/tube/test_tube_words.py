"""The words of a Tube's refusals: what does not fit, what was expected, what it got, what to do."""

import inspect

import pytest
import torch

import tinsmith as ts

F64 = torch.float64
ANY, MATCH, BATCH = ts.AnyDim, ts.MatchDim("n"), ts.BatchDim


def scale(lang):
    @lang.kernel
    def scale(x: lang.template(), y: lang.template(), by: lang.f64):
        for i in x:
            y[i] = x[i] * by

    return scale


def ends(dims=(MATCH,), dims_of_y=None, **options):
    tube = ts.Tube(**options).register_input_tensor(dims, F64, "x")
    return tube.register_output_tensor(dims if dims_of_y is None else dims_of_y, F64, "y", True)


def finished(lang, *arguments, **options):
    return ends(*arguments, **options).register_kernel(scale(lang), ["x", "y"], 2.0).finish()


def two(lang, dims):
    tube = ends(dims).register_input_tensor(dims, F64, "mask")
    return tube.register_kernel(scale(lang), ["x", "y"], 2.0).finish()


# What is done, the error that it raises, and all of its words. `lang` is the engine's module.
REGISTRATION = {
    "size-0": (
        lambda lang: ts.Tube().register_input_tensor((3, 0), F64, "x"),
        ts.ShapeError,
        """
        the dims of input tensor `x` are invalid
          dims  (3, 0)      <- dim 1 is not positive
        A dim is a positive integer, MatchDim(id), BatchDim (only the first), or AnyDim (only in inputs).
        """,
    ),
    "true-is-no-size": (
        lambda lang: ends((3,), (True,)),
        ts.ShapeError,
        """
        the dims of output tensor `y` are invalid
          dims  (True,)      <- dim 0 is not a dim
        A dim is a positive integer, MatchDim(id), BatchDim (only the first), or AnyDim (only in inputs).
        """,
    ),
    "name-of-a-size": (
        lambda lang: ts.Tube().register_input_tensor(("n",), F64, "x"),
        ts.ShapeError,
        """
        the dims of input tensor `x` are invalid
          dims  ('n',)      <- dim 0 is not a dim
        Write `MatchDim('n')` for a size that several tensors share.
        """,
    ),
    "any-size": (
        lambda lang: ts.Tube().register_input_tensor((-1,), F64, "x"),
        ts.ShapeError,
        """
        the dims of input tensor `x` are invalid
          dims  (-1,)      <- dim 0 is not positive
        Write `MatchDim(id)` for a size that several tensors share, or `AnyDim` (only in inputs).
        """,
    ),
    "late-batch": (
        lambda lang: ends((3,), (3, BATCH)),
        ts.ShapeError,
        """
        the dims of output tensor `y` are invalid
          dims  (3, BatchDim)      <- dim 1 is BatchDim, and not the first
        A dim is a positive integer, MatchDim(id), BatchDim (only the first), or AnyDim (only in inputs).
        """,
    ),
    "any-dim-of-a-field": (
        lambda lang: ts.Tube().register_intermediate_field((ANY,), lang.f64, "t", True),
        ts.ShapeError,
        """
        the dims of intermediate field `t` are invalid
          dims  (AnyDim,)      <- dim 0 is AnyDim, which only an input can fix
        A dim is a positive integer, MatchDim(id), BatchDim (only the first), or AnyDim (only in inputs).
        """,
    ),
    "no-tuple": (
        lambda lang: ts.Tube().register_input_tensor(3, F64, "x"),
        ts.ShapeError,
        """
        the dims of input tensor `x` are not a tuple
          got  3
        Write a tuple: `(BatchDim, 4)`; `()` is a single number.
        """,
    ),
    "half-of-the-wrong-kind": (
        lambda lang: ts.Tube().register_input_tensor((3,), torch.bfloat16, "x"),
        ts.DtypeError,
        """
        input tensor `x` cannot have the dtype torch.bfloat16
          expected  float16, float32, float64, int8, int16, int32, int64, bool, uint8, uint16, uint32, uint64, \
complex64, complex128
        Write one of torch's or the engine's: `torch.float32`.
        """,
    ),
    "integers-with-a-gradient": (
        lambda lang: ts.Tube().register_output_tensor((3,), torch.int32, "y", True),
        ts.GradientError,
        """
        output tensor `y` holds torch.int32, which has no gradient
        Register it without a gradient, or with a floating dtype.
        """,
    ),
    "gradient-unsaid": (
        lambda lang: ts.Tube().register_intermediate_field((3,), lang.f64, "t", None),
        ts.RegistrationError,
        """
        intermediate field `t` does not say whether it has a gradient
          needs_grad  None
        Pass needs_grad=True or needs_grad=False.
        """,
    ),
    "name-taken": (
        lambda lang: ends().register_input_tensor((4,), F64, "y"),
        ts.RegistrationError,
        """
        the name `y` is registered twice in Tube()
          before  y (MatchDim('n'),) float64
          now     y (4,) float64
        Give each tensor and field a name of its own.
        """,
    ),
    "no-kernel-at-all": (
        lambda lang: ends().register_kernel(3, ["x", "y"]),
        ts.RegistrationError,
        """
        Tube.register_kernel takes a kernel of Taichi or Quadrants
          got  3
        Decorate it with @ti.kernel (or @qd.kernel).
        """,
    ),
    "unknown-tensor": (
        lambda lang: ends().register_kernel(scale(lang), ["x", "yy"], 2.0),
        ts.RegistrationError,
        """
        kernel `scale` names `yy`, which is not registered
          tensors     x, yy
          registered  x, y
        Did you mean `y`?
        """,
    ),
    "one-string": (
        lambda lang: ends().register_kernel(scale(lang), "xy", 2.0),
        ts.RegistrationError,
        """
        the tensors of kernel `scale` are not given by a list of their names
          got  'xy'
        Write a list: `["x", "y"]`.
        """,
    ),
    "too-many-tensors": (
        lambda lang: ends().register_kernel(scale(lang), ["x", "y", "x", "y"]),
        ts.RegistrationError,
        """
        kernel `scale` is given more tensors than it has parameters
          tensors     x, y, x, y
          parameters  x: template(), y: template(), by: f64
        Name one tensor for each array parameter, in their order.
        """,
    ),
    "too-few-tensors": (
        lambda lang: ends().register_kernel(scale(lang), ["x"]),
        ts.ArgumentError,
        """
        kernel `scale` does not get as many arguments as it has parameters
          parameters       x: template(), y: template(), by: f64
          tensors          x
          extra arguments  none
        Name a tensor for each array parameter; then pass the others, or `set_kernel_extra_args` later.
        """,
    ),
    "tensor-for-a-number": (
        lambda lang: ends().register_kernel(scale(lang), ["x", "y"], torch.tensor(2.0)),
        ts.ArgumentError,
        """
        extra argument `by` of kernel `scale` is a tensor
          got  () torch.float32
        Pass `by.item()`; or register `by` as an input with dims `()`, and it has a gradient.
        """,
    ),
    "kernel-twice": (
        lambda lang: ends().register_kernel(k := scale(lang), ["x", "y"], 2.0).register_kernel(k, ["y", "x"], 3.0),
        ts.RegistrationError,
        """
        a kernel `scale` is registered already in Tube(scale)
          now  scale: y, x, 3.0
        Register it under another name: `name="scale_again"`.
        """,
    ),
    "after-finish": (
        lambda lang: finished(lang).register_input_tensor((3,), F64, "z"),
        ts.RegistrationError,
        """
        input tensor `z` is registered after `finish()` of Tube(scale)
        Register everything first, then call `finish()`.
        """,
    ),
    "no-output": (
        lambda lang: ts.Tube().register_input_tensor((3,), F64, "x").finish(),
        ts.RegistrationError,
        """
        Tube() has no output tensor
        Call `register_output_tensor(...)` before `finish()`.
        """,
    ),
    "undeclared-match": (
        lambda lang: finished(lang, (MATCH,), (ts.MatchDim("m"),)),
        ts.ShapeError,
        """
        no input of Tube(scale) has the MatchDim('m') of output tensor `y`
          inputs have  MatchDim('n')
        Write MatchDim('m') into the dims of an input, too.
        """,
    ),
    "batched-input-alone": (
        lambda lang: finished(lang, (BATCH, 3), (3,)),
        ts.ShapeError,
        """
        inputs of Tube(scale) are batched, and output tensor `y` is not
          x  (BatchDim, 3)
          y  (3,)
        Begin its dims with BatchDim: each sample of a batch fills its own.
        """,
    ),
    "batched-output-alone": (
        lambda lang: finished(lang, (3,), (BATCH, 3)),
        ts.ShapeError,
        """
        output tensor `y` of Tube(scale) is batched, and no input is
          x  (3,)
          y  (BatchDim, 3)
        Begin the dims of an input with BatchDim, or leave it out here.
        """,
    ),
    "unknown-kernel": (
        lambda lang: finished(lang).set_kernel_extra_args("skale", 1.0),
        ts.RegistrationError,
        """
        Tube(scale) has no kernel `skale`
          registered  scale
        Did you mean `scale`?
        """,
    ),
}


def twice_by_kernel(lang):
    kernel = scale(lang)
    tube = ends().register_output_tensor((MATCH,), F64, "z", True).register_kernel(kernel, ["x", "y"], 2.0)
    tube.register_kernel(kernel, ["y", "z"], 3.0, name="again").finish().set_kernel_extra_args(kernel, 4.0)


REGISTRATION["which-kernel"] = (
    twice_by_kernel,
    ts.RegistrationError,
    """
    kernel `scale` is registered 2 times in Tube(scale, again)
      registered as  scale, again
    Pass one of these names instead of the kernel.
    """,
)

CALLS = {
    "unfinished": (
        lambda lang: ends()(torch.rand(3)),
        ts.RegistrationError,
        """
        Tube() is called before `finish()`
        Call `finish()` after the last registration.
        """,
    ),
    "too-many": (
        lambda lang: finished(lang)(torch.rand(3), torch.rand(3)),
        ts.ArgumentError,
        """
        Tube(scale) got a wrong number of tensors
          expected  1: x
          got       2
        Call it with (x); outputs and fields are made by the call.
        """,
    ),
    "no-tensor": (
        lambda lang: finished(lang)([1.0, 2.0]),
        ts.ArgumentError,
        """
        argument `x` of Tube(scale) must be a tensor
          got  list [1.0, 2.0]
        Pass a tensor: `torch.as_tensor(x)`.
        """,
    ),
    "rank": (
        lambda lang: finished(lang)(torch.rand(3, 2)),
        ts.ShapeError,
        """
        tensor `x` of Tube(scale) has 2 dims, and was registered with 1
          registered  (MatchDim('n'),)
          got         (3, 2)
        Register it with BatchDim first, and what is made of it too, to run a batch in one call.
        """,
    ),
    "rank-without-batch": (
        lambda lang: finished(lang, (BATCH, 3))(torch.rand(3)),
        ts.ShapeError,
        """
        tensor `x` of Tube(scale) has 1 dims, and was registered with 2
          registered  (BatchDim, 3)
          got         (3,)
        Pass a batch of one: `x.unsqueeze(0)`.
        """,
    ),
    "size": (
        lambda lang: finished(lang, (3,))(torch.rand(4)),
        ts.ShapeError,
        """
        tensor `x` of Tube(scale) does not have the size that it was registered with
          registered  (3,)
          got         (4,)      <- dim 0 was registered as 3
        Pass that size, or register the dim as AnyDim or MatchDim(id).
        """,
    ),
    "match": (
        lambda lang: two(lang, (MATCH,))(torch.rand(3), torch.rand(4)),
        ts.ShapeError,
        """
        tensor `mask` of Tube(scale) does not fit `x`
          x     (MatchDim('n'),) = (3,)
          mask  (MatchDim('n'),) = (4,)      <- MatchDim('n') was 3
        Pass tensors that agree in MatchDim('n').
        """,
    ),
    "batch": (
        lambda lang: two(lang, (BATCH, 2))(torch.rand(3, 2), torch.rand(4, 2)),
        ts.ShapeError,
        """
        tensor `mask` of Tube(scale) does not fit `x`
          x     (BatchDim, 2) = (3, 2)
          mask  (BatchDim, 2) = (4, 2)      <- BatchDim was 3
        Pass tensors that agree in BatchDim.
        """,
    ),
    "calculated-fraction": (
        lambda lang: finished(lang, (ANY,), lambda *_: (1.5,))(torch.rand(3)),
        ts.ShapeError,
        """
        the dims calculated for output tensor `y` of Tube(scale) are invalid
          dims  (1.5,)      <- dim 0 is not a dim
        Return sizes, BatchDim first, or MatchDims of inputs.
        """,
    ),
    "calculated-negative": (
        lambda lang: finished(lang, (ANY,), lambda *_: [-1])(torch.rand(3)),
        ts.ShapeError,
        """
        the dims calculated for output tensor `y` of Tube(scale) are invalid
          dims  (-1,)      <- dim 0 is negative
        Return sizes, BatchDim first, or MatchDims of inputs.
        """,
    ),
    "calculated-unknown-match": (
        lambda lang: finished(lang, (ANY,), lambda *_: (MATCH,))(torch.rand(3)),
        ts.ShapeError,
        """
        the dims calculated for output tensor `y` of Tube(scale) are invalid
          dims  (MatchDim('n'),)      <- dim 0 is not a MatchDim of an input
        Return sizes, BatchDim first, or MatchDims of inputs.
        """,
    ),
    "calculated-number": (
        lambda lang: finished(lang, (ANY,), lambda *_: 3)(torch.rand(3)),
        ts.ShapeError,
        """
        the dims calculated for output tensor `y` of Tube(scale) are not a tuple
          got  3
        Return a tuple of sizes; `()` is a single number.
        """,
    ),
    "calculated-without-batch": (
        lambda lang: finished(lang, (BATCH, ANY), lambda *_: (3,))(torch.rand(2, 3)),
        ts.ShapeError,
        """
        inputs of Tube(scale) are batched, and output tensor `y` is not
          x  (BatchDim, AnyDim)
          y  (3,), calculated
        Begin its dims with BatchDim: each sample of a batch fills its own.
        """,
    ),
    "floats-to-integers": (
        lambda lang: integers(lang)(torch.rand(3)),
        ts.DtypeError,
        """
        tensor `x` of Tube(count) has the wrong dtype
          registered  int32
          got         float32
        Pass `x.to(torch.int32)`, or register it as torch.float32.
        """,
    ),
    "complex-to-real": (
        lambda lang: finished(lang)(torch.rand(3, dtype=torch.complex64)),
        ts.DtypeError,
        """
        tensor `x` of Tube(scale) has the wrong dtype
          registered  float64
          got         complex64
        Register it as torch.complex64, or pass `torch.view_as_real(...)`.
        """,
    ),
    "two-devices": (
        lambda lang: two(lang, (3,))(torch.rand(3), torch.rand(3, device="meta")),
        ts.DeviceError,
        """
        the tensors of Tube(scale) are on different devices
          x     cpu
          mask  meta
        Move it: `mask.to('cpu')`.
        """,
    ),
    "another-device": (
        lambda lang: finished(lang, device="cuda:1")(torch.rand(3)),
        ts.DeviceError,
        """
        tensor `x` of Tube(scale) is not on cuda:1, where the Tube was made
          x  cpu
        Move it: `x.to('cuda:1')`.
        """,
    ),
    "gradient-unwanted": (
        lambda lang: finished(lang, enable_backward=False)(torch.rand(3, requires_grad=True)),
        ts.GradientError,
        """
        tensor `x` of Tube(scale) requires a gradient, but enable_backward is False
        Pass `x.detach()`, or make the Tube with enable_backward=True.
        """,
    ),
}


def integers(lang):
    @lang.kernel
    def count(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = x[i] + 1

    tube = ts.Tube().register_input_tensor((MATCH,), torch.int32, "x")
    return tube.register_output_tensor((MATCH,), torch.int32, "y", False).register_kernel(count, ["x", "y"]).finish()


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in (REGISTRATION | CALLS).items()])
def test_messages_of_refusals(lang64, case):
    act, error, words = case
    with pytest.raises(error) as refused:
        act(lang64)
    assert str(refused.value) == inspect.cleandoc(words)
