"""Folders that an app wrote, and Ctrl-C pressed at a step."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
from PIL import Image
from safetensors import safe_open


def list_names(folder):
    return {path.name for path in folder.iterdir()}


def read_contents(folder):
    """Read every file of a folder; safetensors writes its metadata in random order."""
    return {
        path.name: read_tensors(path) if path.suffix == ".safetensors" else path.read_bytes()
        for path in folder.iterdir()
    }


def read_without_times(folder):
    """Read every file of a folder, without the seconds in the summary and the report."""
    files = read_contents(folder)
    summary = json.loads(files.pop("summary.json"))
    files["report.html"], count = re.subn(rb"<dt>time</dt><dd>[0-9.]+ s</dd>", b"", files["report.html"])
    assert count == 1
    return files | {"summary": {key: value for key, value in summary.items() if key != "seconds"}}


def read_tensors(path):
    with safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118


def read_pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


class StopAt:
    """Presses Ctrl-C after a step."""

    def __init__(self, step):
        self.step = step

    def __call__(self, step, steps, psnr):
        if step == self.step:
            signal.raise_signal(signal.SIGINT)
