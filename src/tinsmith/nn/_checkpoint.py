"""Checkpoints: the state of a training run in one safetensors file.

Values that are not tensors are JSON in its metadata. The state consists of nested dicts, lists, tuples, tensors,
numbers, strings and None. It is read back bitwise equal, onto the CPU. Unlike a file written by `torch.save`, this file
cannot run code when it is read.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._errors import ArgumentError, CheckpointError, InputError, refusal
from .._extras import require_packages
from .._untrusted import parse_json, read_safetensors
from ..torch_side import is_distributed
from ._distributed import as_shared, gather

_METADATA = "tinsmith"  # one key: safetensors writes several keys in no fixed order


def write_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a nested state of tensors and plain values to a safetensors file. Replace an existing file atomically.

    If a tensor is a DTensor, all processes of its mesh must call this function; the first one writes the whole tensor.

    Args:
        path: the safetensors file.
        state: dicts, lists and tuples of tensors, of any dtype and on any device, numbers, strings and None.

    Raises:
        InputError: the file cannot be written.
        ArgumentError: a value in the nest is neither a tensor nor a plain value.

    Example:
        >>> ts.nn.write_checkpoint("run.safetensors", {"weights": torch.ones(2), "step": 7})
    """
    path = Path(path)
    tensors: dict[str, torch.Tensor] = {}
    structure = json.dumps(_encode(state, "", tensors))
    shared = next((one for one in tensors.values() if is_distributed([one])), None)
    tensors = {name: gather(one) for name, one in tensors.items()}
    if shared is None or as_shared(shared).device_mesh.get_rank() == 0:
        _write(path, tensors, structure)
    if shared is not None:
        torch.distributed.barrier()


def _write(path: Path, tensors: dict[str, torch.Tensor], structure: str) -> None:
    require_packages("write_checkpoint", "nn", "safetensors")
    from safetensors import SafetensorError
    from safetensors.torch import save_file  # not needed to import tinsmith

    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        beside.touch()
        mode = beside.stat().st_mode
        save_file(_unshare_memory(tensors), beside, {_METADATA: structure})
        beside.chmod(mode)  # safetensors leaves files that nobody else may read
        os.replace(beside, path)
    except (OSError, SafetensorError) as cause:
        # safetensors raises its own error for a full disk, not an OSError.
        rows = [("file", str(path)), ("because", getattr(cause, "strerror", None) or str(cause))]
        raise InputError(refusal("the checkpoint cannot be written", rows, "Choose another place for it.")) from cause
    finally:
        beside.unlink(missing_ok=True)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a file that `write_checkpoint` wrote, and return its state with all tensors on the CPU.

    Args:
        path: the safetensors file.

    Raises:
        CheckpointError: the file is missing, broken, or not written by `write_checkpoint`.

    Example:
        >>> ts.nn.write_checkpoint("run.safetensors", {"weights": torch.ones(2), "step": 7})
        >>> ts.nn.read_checkpoint("run.safetensors")
        {'weights': tensor([1., 1.]), 'step': 7}
    """
    require_packages("read_checkpoint", "nn", "safetensors")
    metadata, tensors = read_safetensors(path, partial(_make_broken_error, path))
    structure = metadata.get(_METADATA)
    if structure is None:
        raise _make_broken_error(path, "tinsmith did not write it")
    try:
        return dict(_decode(parse_json(structure), tensors))
    except (KeyError, TypeError, ValueError) as cause:
        raise _make_broken_error(path, f"its list of tensors does not match the tensors in it: {cause!r}") from cause


def _encode(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        while name in tensors:  # the keys 0 and "0", or "a.b" and "b" in "a"
            name += "'"
        tensors[name] = value.detach()
        return {"tensor": name}
    if isinstance(value, Mapping):
        pairs = ((_encode(key, name, {}), _encode(held, _join_path(name, key), tensors)) for key, held in value.items())
        return {"dict": list(pairs)}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(held, _join_path(name, place), tensors) for place, held in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    rows = [("at", name), ("got", type(value).__name__), ("expected", "tensors, numbers, texts, dicts, lists, tuples")]
    raise ArgumentError(refusal("the state holds a value that a checkpoint cannot store", rows))


def _join_path(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _decode(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, held),) = node.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "dict":
        return {_decode(key, {}): _decode(value, tensors) for key, value in held}
    return {"list": list, "tuple": tuple}[kind](_decode(value, tensors) for value in held)


def _unshare_memory(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors on the CPU, contiguous, copied where two share memory: safetensors refuses shared memory."""
    unshared: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        here = tensor.cpu().contiguous()
        storage = here.untyped_storage().data_ptr()
        unshared[name] = here.clone() if storage in seen else here
        seen.add(storage)
    return unshared


def _make_broken_error(path: str | Path, reason: str) -> CheckpointError:
    rows = [("file", str(path)), ("because", reason)]
    remedy = "Pass an intact file that `write_checkpoint` or the `save` of a Trainer wrote."
    error = CheckpointError(refusal("the checkpoint is broken", rows, remedy))
    error.reason = reason
    return error


def get_random_state() -> dict[str, Any]:
    """Return the states of the global random generators as nested dicts that `write_checkpoint` can write."""
    numpys = np.random.get_state(legacy=False)
    key = torch.from_numpy(numpys["state"]["key"].astype(np.int64))
    state = {
        "python": random.getstate(),
        "numpy": numpys | {"state": numpys["state"] | {"key": key}},
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Restore the global random generators from a state that `random_state` returned.

    CUDA's generators are left as they are if the number of CUDA devices has changed.
    """
    random.setstate(state["python"])
    numpys = state["numpy"]
    key = numpys["state"]["key"].numpy().astype(np.uint32)
    np.random.set_state(numpys | {"state": numpys["state"] | {"key": key}})
    torch.set_rng_state(state["torch"])
    if len(state.get("cuda", ())) == torch.cuda.device_count() > 0:
        torch.cuda.set_rng_state_all(state["cuda"])
