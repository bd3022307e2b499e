"""The engine keeper: starts each engine as a test wants it, and only when that is not how it runs already.

Starting an engine costs a tenth of a second and forgets every compiled kernel, and one process
holds one running configuration of each engine. So tests are sorted by configuration
(tests/conftest.py), and the keeper starts an engine anew only where the configuration changes, or
where a test called `init` or `reset` itself.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ENGINES = ("taichi", "quadrants")

# Quadrants refuses reverse mode through dynamic loops without it.
_ENGINE_OPTIONS: dict[str, dict[str, Any]] = {
    "taichi": {},
    "quadrants": {"ad_stack_experimental_enabled": True},
}

# What the suite compiles is several times an engine's 100 MB, beyond which it forgets the oldest kernels.
CACHE_BYTES = 2**31 - 1


@dataclass(frozen=True, order=True)
class Configuration:
    """How an engine runs: where, and what a Python float becomes in a kernel. Sorts tests."""

    arch: str = "cpu"
    default_fp: str = "f32"


class EngineKeeper:
    """Starts engines on demand. Compiled kernels are cached on disk, for later sessions and other processes.

    Processes may share the folder: an engine adds what it compiled when it stops, under a lock of its own.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._running: dict[str, tuple[Configuration, object]] = {}

    def ensure(self, engine: str, configuration: Configuration) -> ModuleType:
        """Return the engine's module, running in that configuration."""
        lang = load_quietly(engine)
        if self._running.get(engine) != (configuration, _runtime(lang)):
            self._start(lang, engine, configuration)
            self._running[engine] = (configuration, _runtime(lang))
        return lang

    def stop(self) -> None:
        """Stop the engines. Taichi 1.7.4 writes its cache then, and not where the process ends with it running."""
        for engine in self._running:
            load_quietly(engine).reset()
        self._running.clear()

    def _start(self, lang: Any, engine: str, configuration: Configuration) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # Quadrants prints "Starting on arch=..." whatever the level
            lang.init(
                arch=getattr(lang, configuration.arch),
                default_fp=getattr(lang, configuration.default_fp),
                offline_cache=True,
                offline_cache_file_path=str(self._cache / engine),
                offline_cache_max_size_of_files=CACHE_BYTES,
                log_level=lang.WARN,
                **_ENGINE_OPTIONS[engine],
            )


def load_quietly(engine: str) -> ModuleType:
    """Import an engine without the banner that it prints; in subprocesses of a test too."""
    os.environ[f"ENABLE_{engine.upper()}_HEADER_PRINT"] = "False"
    return importlib.import_module(engine)


def _runtime(lang: Any) -> object:
    """Return the engine's runtime object; both engines make a new one at every `init` and `reset`."""
    return lang.lang.impl.get_runtime()
