"""The states of the global random generators of torch, numpy and Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


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
