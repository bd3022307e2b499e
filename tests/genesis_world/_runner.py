"""Runs scenes, each in its own process: a process that dies or hangs costs one kernel, and the scene starts again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import _rigid_scenes, _soft_scenes  # noqa: F401  # they register their scenes
from ._recorder import Recorder, write_outcome
from ._scenes import SCENES, save_kernels, start
from ._trial import Outcome

PATIENCE = 60.0
"""How much longer a trial may take on a busy machine than its processor time."""
SOME_SCENES = 2
"""In how many scenes a kernel is tried that has nothing to differentiate there."""
STARTING = 3600.0
"""Seconds that a scene may take without a trial: Genesis compiles its kernels at first."""


def run_scene(name: str, log: Path, limit: float, only: str, counts_only: bool) -> None:
    """Run a scene in this process. Keeps what was launched in `log/scenes`, and outcomes in `log/kernels`."""
    import torch

    torch.set_num_threads(1)
    scene = SCENES[name]

    def wants(key: str) -> bool:
        paths = (log / "kernels").glob(f"{key}@{name if scene.is_variant else '*'}.json")
        done = [json.loads(path.read_text()) for path in paths]
        is_empty = sum(one["verdict"] == "nothing" for one in done if one["scene"] != name) >= SOME_SCENES
        return bool(re.search(only, key)) and not is_empty and not any(_is_final(one, limit) for one in done)

    recorder = Recorder(name, None if counts_only else log / "kernels", limit, wants)
    # A cache of the engine's own is emptied by other programs, whose limit is lower than what Genesis needs.
    os.environ.setdefault("QD_OFFLINE_CACHE_FILE_PATH", str(log.absolute() / "engine"))
    counted = log / "scenes" / f"{name}.json"
    if counted.exists() and (counts := json.loads(counted.read_text())).get("is_complete", True):
        recorder.earlier = counts["launches"]
    gs = start(scene)
    counted.parent.mkdir(parents=True, exist_ok=True)

    def save_counts(is_complete: bool) -> None:
        counts = {"launches": recorder.launches, "forms": recorder.forms, "is_complete": is_complete}
        counted.write_text(json.dumps(counts, indent=1))

    def ready() -> None:
        recorder.is_ready = True
        if not recorder.earlier:  # a scene that is stopped has launched this much
            save_counts(is_complete=False)

    with recorder:
        try:
            scene.run(gs, ready)
        except Exception:  # noqa: BLE001  # what was launched until then counts
            traceback.print_exc()
    save_counts(is_complete=True)
    save_kernels()  # last: a kernel that is launched after that crashes
    os._exit(0)  # an engine's threads may not end


def run_scenes(names: list[str], log: Path, limit: float, jobs: int, only: str) -> None:
    """Run scenes in processes of their own."""
    (log / "kernels").mkdir(parents=True, exist_ok=True)
    for left in (log / "kernels").glob("*.claim"):
        left.unlink()
    (log / "scenes").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda name: _run(name, log, limit, only), names))


def _run(name: str, log: Path, limit: float, only: str) -> None:
    for _ in range(50):
        if _watch(name, log, limit, only, []):
            return


def _watch(name: str, log: Path, limit: float, only: str, more: list[str]) -> bool:
    """Run a scene in a process. Returns whether it is done: not if a kernel ended it, which is noted."""
    begun = log / "kernels" / f"{name}.begun"
    begun.unlink(missing_ok=True)
    command = [sys.executable, "-m", "genesis_world", "scene", name, "--log", str(log), "--limit", str(limit)]
    began = time.time()
    with (log / f"{name}.log").open("a") as output:
        process = subprocess.Popen([*command, "--only", only, *more], stdout=output, stderr=output)
        last = began
        while process.poll() is None:
            time.sleep(1)
            if begun.exists():
                last = time.time()
                at = _read(begun)
                if at and time.time() - at["at"] > PATIENCE * limit:
                    process.kill()
            elif time.time() - last > STARTING:
                process.kill()
        code = process.wait()
    how = f"exit code {code}" if code else "done"
    print(f"{name}: {how}, {time.time() - began:.0f} s", flush=True)
    at = _read(begun)
    if code and at:
        (log / "kernels" / f"{at['key']}.claim").unlink(missing_ok=True)
        is_late = time.time() - at["at"] > 0.99 * PATIENCE * limit
        verdict = (
            Outcome("timeout", f"took more than {limit:.0f} s", {"limit": limit})
            if is_late
            else Outcome("died", f"exit code {code}")
        )
        write_outcome(log / "kernels", at["key"], name, verdict)
        begun.unlink()
        return False
    return True


def _is_final(outcome: dict[str, Any], limit: float) -> bool:
    """Return True if a kernel need not be tried again: unless it took too long, and may take longer now."""
    return outcome["is_final"] and outcome["numbers"].get("limit", limit) >= limit


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def summarize(log: Path) -> dict[str, int]:
    """Return how many outcomes there are of each verdict."""
    return dict(Counter(json.loads(path.read_text())["verdict"] for path in (log / "kernels").glob("*.json")))
