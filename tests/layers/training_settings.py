"""The settings of docs/how-to/distributed.md: how a model is trained by several processes, saved, loaded and resumed.

    torchrun --nproc-per-node 2 tests/layers/training_settings.py ENGINE [SETTING...]   compares, in each process
    python tests/layers/training_settings.py --write                                    writes the page's table

One model of four blocks, each with an op, an EmptyTin with weights and a `ts.nn.NetworkArray`, is trained in each
setting, and so is its twin in plain torch. Losses of all steps and the final parameters are compared.
"""

import contextlib
import functools
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import setuptools  # noqa: F401 - before Quadrants, after which torch could not load it
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    StateDictType,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import tinsmith as ts
from support.engine_keeper import load_quietly

F64, CPU = torch.float64, torch.device("cpu")
ROWS, WIDTH, BLOCKS, STEPS = 4, 4, 4, 3
NETWORK = {"otype": "FullyFusedMLP", "n_neurons": 4, "n_hidden_layers": 1}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "distributed.md"
BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"


# The model and its twin ---------------------------------------------------------------------------
WAYS = ({}, {"adjoint": "engine"}, {"on_tensors": True}, {"batched": True})
"""How the EmptyTin of each block runs: all ways that there are."""


@functools.cache
def smoothing(lang):
    @ts.op("x[*b, n], k[m] -> y[*b, n]")
    @lang.kernel
    def smooth(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[(i + j) % x.shape[0]] * k[j]

    return smooth


@functools.cache
def fields_and_kernel(lang, number):
    """Return the fields and the kernel of an EmptyTin, made once, since other fields would compile it again."""
    is_batched = "batched" in WAYS[number]
    x, y = (lang.field(lang.f64, WIDTH if is_batched else (ROWS, WIDTH), needs_grad=True) for _ in range(2))
    w, s = lang.field(lang.f64, WIDTH, needs_grad=True), lang.field(lang.f64, 1, needs_grad=True)

    @lang.kernel
    def weigh_batches():
        for j in x:
            y[j] = w[j] * x[j] + s[0]

    @lang.kernel
    def weigh():
        for i, j in x:
            y[i, j] = w[j] * x[i, j] + s[0]

    return x, y, w, s, weigh_batches if is_batched else weigh


def weighing(lang, number, w_start, s_start):
    """Make an EmptyTin with two weights, one of a single element, of which some process has an empty shard."""
    options = dict(WAYS[number])
    is_batched = options.pop("batched", False)
    x, y, w, s, kernel = fields_and_kernel(lang, number)
    tin = ts.EmptyTin(**options).register_input_field(x, batched=is_batched).register_output_field(y)
    tin = tin.register_weight_field(w, name="w", value=w_start).register_weight_field(s, name="s", value=s_start)
    return tin.register_kernel(kernel).finish()


def cells():
    return ts.nn.NetworkArray((2,), WIDTH, WIDTH, network_config=NETWORK, dtype=F64)


class Block(nn.Module):
    """An op, an EmptyTin and an array of two networks, each for one half of the samples."""

    def __init__(self, lang, number):
        super().__init__()
        generator = torch.Generator().manual_seed(number)
        self.taps = nn.Parameter(torch.rand(3, dtype=F64, generator=generator, device="cpu"))
        start = torch.rand(WIDTH, dtype=F64, generator=generator, device="cpu") + 0.5
        self.smooth = smoothing(lang)
        self.tin = weighing(lang, number, start, torch.full((1,), 0.1, dtype=F64, device="cpu"))
        self.array = cells()

    def forward(self, x):
        h = torch.tanh(self.tin(self.smooth(x, self.taps)))
        return x + self.array(h.reshape(2, -1, WIDTH)).reshape(x.shape)


class TorchWeighing(nn.Module):
    def __init__(self, w, s):
        super().__init__()
        self.w, self.s = nn.Parameter(w.clone()), nn.Parameter(s.clone())

    def forward(self, x):
        return self.w * x + self.s


class TorchCells(nn.Module):
    def __init__(self, array):
        super().__init__()
        self.layout = array.layout
        self.params = nn.Parameter(array.params.detach().clone())

    def forward(self, x):
        *hidden, (weights, biases) = self.layout.layers(self.params)
        for inner, bias in hidden:
            x = torch.relu(x @ inner + bias)
        return x @ weights + biases


class TorchBlock(nn.Module):
    """The same in plain torch, with the names and the values of a block's parameters."""

    def __init__(self, block):
        super().__init__()
        self.taps = nn.Parameter(block.taps.detach().clone())
        self.tin = TorchWeighing(block.tin.w.detach(), block.tin.s.detach())
        self.array = TorchCells(block.array)

    def forward(self, x):
        taps = self.taps.unbind()
        h = torch.tanh(self.tin(sum(torch.roll(x, -shift, -1) * tap for shift, tap in enumerate(taps))))
        return x + self.array(h.reshape(2, -1, WIDTH)).reshape(x.shape)


def make_model(lang):
    return nn.Sequential(*[Block(lang, number) for number in range(BLOCKS)])


def make_twin(lang):
    return nn.Sequential(*[TorchBlock(block) for block in make_model(lang)])


# Training -----------------------------------------------------------------------------------------
def data(step):
    """Return this process's samples of a step, and their targets."""
    samples = torch.rand(
        2 * ROWS * dist.get_world_size(), WIDTH, dtype=F64, generator=torch.Generator().manual_seed(step)
    )
    x, target = samples.chunk(2)
    mine = slice(dist.get_rank() * ROWS, (dist.get_rank() + 1) * ROWS)
    return x[mine], target[mine]


ADAM = {"lr": 0.01, "eps": 1e-3}
"""Torch's own eps, 1e-8, makes steps of 1e-11 of the rounding errors of gradients that are 0."""


def adam(model):
    return torch.optim.Adam(model.parameters(), **ADAM)


def loss_of(model, step):
    x, target = data(step)
    loss = (model(x) - target).square().mean()
    loss.backward()
    return loss.detach()


def train(model, optimizer, first=0, *, norm=None):
    """Train for some steps, and return their losses."""
    losses = []
    for step in range(first, first + STEPS):
        optimizer.zero_grad()
        losses.append(loss_of(model, step))
        if norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
    return losses


def accumulate(model, optimizer, without_sync):
    """Train with two batches a step, of which only the second makes processes exchange gradients."""
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        with without_sync():
            losses.append(loss_of(model, 2 * step))
        losses.append(loss_of(model, 2 * step + 1))
        optimizer.step()
    return losses


def parameters(model):
    """Return whole parameters by the names that they have in the model itself."""
    whole = FullyShardedDataParallel.summon_full_params(model) if isinstance(model, FullyShardedDataParallel) else None
    with whole or contextlib.nullcontext():
        named = {
            name: one.full_tensor() if isinstance(one, DTensor) else one.detach().clone()
            for name, one in model.named_parameters()
        }
    wrappers = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "module.")
    for wrapper in wrappers:
        named = {name.replace(wrapper, ""): one for name, one in named.items()}
    return named


def outcome(model, losses):
    return {**{f"loss {number}": loss for number, loss in enumerate(losses)}, **parameters(model)}


def mesh(*names):
    processes = dist.get_world_size()
    return init_device_mesh("cpu", (1, processes) if names else (processes,), mesh_dim_names=names or None)


def shard(model, **options):
    """Shard by `fully_shard`, each block by itself."""
    for block in model:
        fully_shard(block, mesh=options.get("mesh") or mesh(), **{k: v for k, v in options.items() if k != "mesh"})
    return fully_shard(model, mesh=options.pop("mesh", None) or mesh(), **options)


def shared_folder():
    """Return a folder that all processes use; the first process makes it."""
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names)
    return names[0]


# Settings: each takes what makes a model, and returns the losses and the parameters ---------------------
def data_parallel(make):
    model = DistributedDataParallel(make())
    return outcome(model, train(model, adam(model)))


def data_parallel_accumulated(make):
    model = DistributedDataParallel(make())
    return outcome(model, accumulate(model, adam(model), model.no_sync))


def data_parallel_zero(make):
    model = DistributedDataParallel(make())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, **ADAM)
    return outcome(model, train(model, optimizer))


def sharded(make, **options):
    model = shard(make(), **options)
    return outcome(model, train(model, adam(model)))


def sharded_hybrid(make):
    return sharded(make, mesh=mesh("replicate", "shard"))


def sharded_accumulated(make):
    model = shard(make())

    @contextlib.contextmanager
    def without_sync():
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)

    return outcome(model, accumulate(model, adam(model), without_sync))


def sharded_clipped(make):
    model = shard(make())
    return outcome(model, train(model, adam(model), norm=0.01))


def sharded_ignored(make):
    model = make()
    ignored = set(model[0].tin.parameters())
    for block in model:
        fully_shard(block, mesh=mesh(), ignored_params=ignored)
    fully_shard(model, mesh=mesh(), ignored_params=ignored)
    optimizer = torch.optim.Adam([one for one in model.parameters() if isinstance(one, DTensor)], **ADAM)
    return outcome(model, train(model, optimizer))


def sharded_recomputed(make):
    model = shard(nn.Sequential(*[checkpoint_wrapper(block) for block in make()]))
    return outcome(model, train(model, adam(model)))


def sharded_compiled(make):
    model = make()
    for block in model:
        block.compile(backend="aot_eager")
    model = shard(model)
    return outcome(model, train(model, adam(model)))


def sharded_layers(make):
    """Shard the layers by themselves, too."""
    model = make()
    for block in model:
        fully_shard(block.tin, mesh=mesh())
        fully_shard(block.array, mesh=mesh())
    return outcome(shard(model), train(model, adam(model)))


def sharded_from_meta(make):
    values = get_model_state_dict(make())
    with torch.device("meta"):
        model = make()
    assert all(one.is_meta for block in model for one in block.tin.parameters())
    model = shard(model.to("meta"))  # the taps, which are drawn on the CPU
    model.to_empty(device="cpu")
    set_model_state_dict(model, values, options=StateDictOptions(full_state_dict=True))
    return outcome(model, train(model, adam(model)))


def resumed_whole(make, *, is_broadcast=False):
    model = shard(make())
    losses = train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    values = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=is_broadcast))
    model = shard(make())
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=is_broadcast)
    set_model_state_dict(model, values, options=options)
    return outcome(model, losses + train(model, torch.optim.SGD(model.parameters(), lr=0.1), STEPS))


def resumed_sharded(make, *, assign=False):
    model = shard(make())
    optimizer = adam(model)
    losses = train(model, optimizer)
    model, saved, before = shard(make()), model.state_dict(), optimizer.state_dict()
    model.load_state_dict(saved, assign=assign)
    optimizer = adam(model)
    optimizer.load_state_dict(before)
    return outcome(model, losses + train(model, optimizer, STEPS))


def resumed_from_files(make):
    model = shard(make())
    optimizer = adam(model)
    losses, folder = train(model, optimizer), shared_folder()
    values, state = get_state_dict(model, optimizer)
    dcp.save({"model": values, "optimizer": state}, checkpoint_id=folder)
    model = shard(make())
    optimizer = adam(model)
    values, state = get_state_dict(model, optimizer)
    dcp.load({"model": values, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=state)
    return outcome(model, losses + train(model, optimizer, STEPS))


def resumed_alone(make):
    """Save by all processes, load by one alone, and train it there on data of its own."""
    model = shard(make())
    losses, folder = train(model, adam(model)), shared_folder()
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)
    model = make()
    values = get_model_state_dict(model)
    dcp.load({"model": values}, checkpoint_id=folder, no_dist=True)
    model.load_state_dict(values)
    return outcome(model, losses + train(model, adam(model), STEPS))


def flat(make, *, use_orig_params):
    model = FullyShardedDataParallel(make(), use_orig_params=use_orig_params, device_id=CPU)
    return outcome(model, train(model, adam(model)))


def flat_resumed(make, *, kind, use_orig_params):
    def wrapped():
        return FullyShardedDataParallel(make(), use_orig_params=use_orig_params, device_id=CPU)

    model = wrapped()
    optimizer = adam(model)
    losses = train(model, optimizer)
    with FullyShardedDataParallel.state_dict_type(model, kind):
        values, state = model.state_dict(), FullyShardedDataParallel.optim_state_dict(model, optimizer)
    model = wrapped()
    optimizer = adam(model)
    with FullyShardedDataParallel.state_dict_type(model, kind):
        model.load_state_dict(values)
        optimizer.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, state))
    return outcome(model, losses + train(model, optimizer, STEPS))


def distributed_tensors(make):
    """Distribute by `distribute_module`: parameters and samples are DTensors, whole in each process."""
    model = distribute_module(make(), mesh())
    optimizer, losses = adam(model), []
    for step in range(STEPS):
        optimizer.zero_grad()
        samples = torch.rand(2, ROWS, WIDTH, dtype=F64, generator=torch.Generator().manual_seed(step))
        x, target = (distribute_tensor(one, model[0].taps.device_mesh, [Replicate()]) for one in samples)
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.full_tensor().detach())
    return outcome(model, losses)


class Setting(NamedTuple):
    """A setting, as the page names it; and how far results may differ, relative to 1 or to the larger one."""

    words: str
    run: Callable
    tolerance: float = 1e-12


FULL, SHARDED = StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT
SETTINGS = {
    "ddp": Setting("`DistributedDataParallel`", data_parallel),
    "ddp-no-sync": Setting(
        "`DistributedDataParallel`, gradients accumulated under `no_sync`", data_parallel_accumulated
    ),
    "ddp-zero": Setting("`DistributedDataParallel` with `ZeroRedundancyOptimizer`", data_parallel_zero),
    "fsdp": Setting("`fully_shard`", sharded),
    "fsdp-layers": Setting("`fully_shard` of each layer, block and the model", sharded_layers),
    "fsdp-kept": Setting(
        "`fully_shard(reshard_after_forward=False)`", functools.partial(sharded, reshard_after_forward=False)
    ),
    "fsdp-hybrid": Setting("`fully_shard` on a mesh of two dims (hybrid sharding)", sharded_hybrid),
    "fsdp-offload": Setting(
        "`fully_shard` with `CPUOffloadPolicy`",
        functools.partial(sharded, offload_policy=CPUOffloadPolicy(pin_memory=False)),
    ),
    "fsdp-bf16": Setting(
        "`fully_shard` with `MixedPrecisionPolicy(param_dtype=torch.bfloat16)`",
        functools.partial(sharded, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)),
        0.03,
    ),
    "fsdp-no-sync": Setting(
        "`fully_shard`, gradients accumulated under `set_requires_gradient_sync(False)`", sharded_accumulated
    ),
    "fsdp-clipped": Setting("`fully_shard` and `clip_grad_norm_`", sharded_clipped),
    "fsdp-ignored": Setting("`fully_shard(ignored_params=...)` for the weights of a layer", sharded_ignored),
    "fsdp-recomputed": Setting("`fully_shard` around blocks in `checkpoint_wrapper`", sharded_recomputed),
    "fsdp-compiled": Setting("`fully_shard` around blocks that `torch.compile` compiles", sharded_compiled),
    "fsdp-meta": Setting(
        "`fully_shard` of a model made on the meta device, `to_empty`, then loaded", sharded_from_meta
    ),
    "full": Setting("resumed from a whole state dict (`full_state_dict=True`)", resumed_whole),
    "full-broadcast": Setting(
        "the same, which only the first process has (`broadcast_from_rank0=True`)",
        functools.partial(resumed_whole, is_broadcast=True),
    ),
    "sharded": Setting("resumed from a state dict of DTensors", resumed_sharded),
    "sharded-assign": Setting(
        "the same, with `load_state_dict(assign=True)`", functools.partial(resumed_sharded, assign=True)
    ),
    "files": Setting("resumed from files of `torch.distributed.checkpoint`", resumed_from_files),
    "files-alone": Setting("the same files, loaded by another number of processes", resumed_alone),
    "fsdp1": Setting("`FullyShardedDataParallel`", functools.partial(flat, use_orig_params=False)),
    "fsdp1-orig": Setting(
        "`FullyShardedDataParallel(use_orig_params=True)`", functools.partial(flat, use_orig_params=True)
    ),
    "fsdp1-full": Setting(
        "`FullyShardedDataParallel`, resumed from `FULL_STATE_DICT`",
        functools.partial(flat_resumed, kind=FULL, use_orig_params=True),
    ),
    "fsdp1-sharded": Setting(
        "`FullyShardedDataParallel`, resumed from `SHARDED_STATE_DICT`",
        functools.partial(flat_resumed, kind=SHARDED, use_orig_params=False),
    ),
    "dtensor": Setting("`distribute_module` with whole parameters, samples as DTensors", distributed_tensors),
}


# Comparing, and the page ----------------------------------------------------------------------------
def compare(lang, name):
    """Raise AssertionError where a setting gives the model another outcome than its twin."""
    setting = SETTINGS[name]
    twin = setting.run(functools.partial(make_twin, lang))
    ours = setting.run(functools.partial(make_model, lang))
    assert ours.keys() == twin.keys()
    assert not torch.equal(twin["loss 0"], twin["loss 1"]), "nothing was trained"
    for key, wanted in twin.items():
        words = f"{name}, {key}: "
        torch.testing.assert_close(
            ours[key], wanted, rtol=setting.tolerance, atol=setting.tolerance, msg=words.__add__, check_dtype=False
        )


def check_weights(lang):
    """Set, gather and reset sharded weights, which all processes do together; calls with one that is not shared."""
    model, value = shard(make_model(lang)), torch.arange(WIDTH, dtype=F64)
    for number, block in enumerate(model):
        tin, field = block.tin, fields_and_kernel(lang, number)[2]
        start = tin.w.full_tensor()
        for given in (value, distribute_tensor(value, mesh(), [Shard(0)])):
            tin.set_internal_field("w", given)
            assert torch.equal(tin.w.full_tensor(), value) and torch.equal(field.to_torch(), value)
            tin.reset_parameters()  # may run on one process alone, and cannot gather a weight for its field
            assert torch.equal(tin.w.full_tensor(), start) and torch.equal(field.to_torch(), value)
        tin.write_weights()
        assert torch.equal(field.to_torch(), start)
        with pytest.raises(ts.ArgumentError, match=r"`input_field_0` of .* is not a DTensor"):
            tin.forward(torch.ones(ROWS, WIDTH, dtype=F64))


def table():
    """Return the page's table of settings."""
    rows = [f"| {setting.words} | {setting.tolerance:.0e} |" for setting in SETTINGS.values()]
    return "\n".join(["| setting | largest difference |", "|---|---|", *rows])


def with_table(page):
    """Return the page with this table."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


def main(engine, *names):
    dist.init_process_group("gloo")
    lang = load_quietly(engine)
    ts.init("cpu", engine=engine, default_fp=lang.f64)
    check_weights(lang)
    for name in names or SETTINGS:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(lang, name)
        sys.stderr.write(f"{name}: {time.perf_counter() - start:.1f} s\n")
        sys.stdout.write(f"process {dist.get_rank()}: {name} is the same\n")
    dist.destroy_process_group()
    sys.stdout.flush()
    # not through Python's end, where threads of the engine and of gloo now and then terminate the process
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(with_table(PAGE.read_text()))
    else:
        main(*sys.argv[1:])
