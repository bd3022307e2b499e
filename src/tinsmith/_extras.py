"""Extras: optional parts of tinsmith, the packages that they need, and the command that installs them.

The core needs torch, an engine and numpy. Code that imports another package calls `require_packages` first, so that
the error names the extra to install instead of "No module named 'PIL'". `pyproject.toml` lists the same packages
under the same extras (tests/test_extras.py compares them). Each part of tinsmith states the packages that it needs
where it begins.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ._errors import ConfigError, refusal

EXTRAS: dict[str, dict[str, str]] = {
    "apps": {
        "typer": "typer",
        "rich": "rich",
        "PIL": "pillow",
        "matplotlib": "matplotlib",
        "safetensors": "safetensors",
    },
    "captures": {"cv2": "opencv-python-headless", "PIL": "pillow"},
    "nn": {"safetensors": "safetensors", "pytorch_optimizer": "pytorch-optimizer", "tensorboard": "tensorboard"},
    "quadrants": {"quadrants": "quadrants"},
    "view": {"viser": "viser"},
}
"""For each extra: the modules that it makes importable, and the distributions that contain them."""


def require_packages(what: str, extra: str, *modules: str) -> None:
    """Raise ConfigError unless the modules that a part of tinsmith needs can be imported. Do not import them.

    Args:
        what: the part, as the subject of a sentence: "the command line".
        extra: the extra that installs them.
        modules: their names; all of the extra if left out.

    Raises:
        ConfigError: one of them is missing.

    Example:
        >>> require_packages("the command line", "apps", "typer", "rich")
    """
    missing = [name for name in modules or EXTRAS[extra] if not _can_be_imported(name)]
    if missing:
        raise missing_package(what, extra, missing[0])


def missing_package(what: str, extra: str, module: str, otherwise: str = "") -> ConfigError:
    """Return the error for a missing module, which names the command that installs it.

    Args:
        what: the part of tinsmith that needs it, as the subject of a sentence.
        extra: the extra that installs it.
        module: its name.
        otherwise: what else the user can do: "leave out --view".
    """
    remedy = f"Run {install_command(extra)}{f', or {otherwise}' if otherwise else ''}."
    return ConfigError(refusal(f"{what} needs {EXTRAS[extra][module]}, which is not installed", [], remedy))


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation of tinsmith.

    If tinsmith is not installed but only on the path, the command names the packages of the extra themselves.
    """
    installed = _this_distribution()
    if installed is None:
        return " ".join(["pip install", *sorted(set(EXTRAS[extra].values()))])
    is_uv = (installed.read_text("INSTALLER") or "").strip() == "uv"
    # In a project that uv manages, `uv pip install` would be undone by the next `uv sync`.
    is_uv_project = is_uv and Path(sys.prefix).parent.joinpath("uv.lock").is_file()
    command = "uv add" if is_uv_project else "uv pip install" if is_uv else "pip install"
    editable = "--editable " if is_uv_project else "-e "
    origin = _origin_of(installed)
    folder = _local_path(origin)
    if "dir_info" in origin and folder is not None:
        return f'{command} {editable if origin["dir_info"].get("editable") else ""}"{folder}[{extra}]"'
    if "vcs_info" in origin:
        revision = origin["vcs_info"].get("requested_revision") or origin["vcs_info"].get("commit_id")
        return f'{command} "tinsmith[{extra}] @ {origin["vcs_info"]["vcs"]}+{origin["url"]}@{revision}"'
    if "archive_info" in origin and (folder is None or folder.exists()):
        return f'{command} "tinsmith[{extra}] @ {origin["url"]}"'
    return f'{command} "tinsmith[{extra}]"'


def _can_be_imported(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it is loaded, by a loader that left no spec
        return True


def _this_distribution() -> metadata.Distribution | None:
    """Return the installed distribution that this file belongs to; None for a checkout on the path."""
    here = Path(__file__).resolve()
    for distribution in metadata.distributions(name="tinsmith"):
        origin = _origin_of(distribution)
        folder = _local_path(origin)
        is_editable = bool(origin.get("dir_info", {}).get("editable"))
        if is_editable and folder is not None and here.is_relative_to(folder.resolve()):
            return distribution
        if not is_editable and here == Path(str(distribution.locate_file("tinsmith/_extras.py"))).resolve():
            return distribution
    return None


def _origin_of(installed: metadata.Distribution) -> dict[str, Any]:
    """Return where a distribution was installed from, as PEP 610 records it; an empty dict for a package index."""
    return json.loads(installed.read_text("direct_url.json") or "{}")


def _local_path(origin: dict[str, Any]) -> Path | None:
    """Return the path of a `file:` URL; None for any other."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(origin.get("url", ""))
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None
