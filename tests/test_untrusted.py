"""Files from strangers: bombs, the limits of SECURITY.md, and random damage, for every loader.

A loader may accept a damaged file or raise an error of tinsmith; it raises no other error, and takes little time and
memory. `mutate` damages a valid file in the way of someone who knows formats: bits, lengths, counts and numbers.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import struct
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tinsmith as ts
from support.colmap import write_binary, write_text
from support.commit import find_commit
from tinsmith import _untrusted
from tinsmith._errors import TinsmithError
from tinsmith.apps._photo import load_photo
from tinsmith.render import gaussians

ROOT = Path(__file__).parents[1]
MOST_SECONDS, MOST_BYTES = 2.0, 500 << 20

CAMERAS = [(1, "OPENCV", 16, 12, (14.0, 14.0, 8.0, 6.0, 0.0, 0.0, 0.0, 0.0))]
IMAGES = [(1, (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 2.0), 1, "a.png", [(1.0, 2.0, 4)])]
POINTS = [(4, (0.5, 1.0, 2.0), (9, 8, 7), (1, 0)), (5, (0.0, 1.0, 3.0), (1, 2, 3), ())]
CONFIGURATION = """{ // a comment
    "loss": {"otype": "RelativeL2"}, /* another */
    "optimizer": {"otype": "Adam", "learning_rate": 1e-2},
    "encoding": {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 6, "base_resolution": 4},
    "network": {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2},
}"""


def splats():
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (3, 3)}
    generator = torch.Generator().manual_seed(1)
    return {name: torch.rand(5, *shape, generator=generator) for name, shape in shapes.items()}


def write_capture(folder):
    (folder / "images").mkdir()
    Image.new("RGB", (16, 12)).save(folder / "images/a.png")


def write_transforms(folder):
    write_capture(folder)
    frame = {"file_path": "images/a", "transform_matrix": torch.eye(4).tolist(), "k1": 0.01}
    whole = {"fl_x": 14.0, "cx": 8, "w": 16, "h": 12, "frames": [frame], "ply_file_path": "points.ply"}
    (folder / "transforms.json").write_text(json.dumps(whole))
    lines = ["ply", "format ascii 1.0", "element vertex 2", *(f"property float {axis}" for axis in "xyz")]
    lines += [*(f"property uchar {color}" for color in ("red", "green", "blue")), "end_header"]
    (folder / "points.ply").write_text("\n".join([*lines, "1 2 3 4 5 6", "1.5 2 3 4 5 6", ""]))


def write_ascii_ply(folder):
    names = ["x", "y", "z", "opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    names += [f"f_dc_{i}" for i in range(3)]
    lines = ["ply", "format ascii 1.0", "element vertex 3", *(f"property float {name}" for name in names), "end_header"]
    (folder / "a.ply").write_text("\n".join([*lines, *["0.5 " * len(names)] * 3, ""]))


def write_colmap(write: Callable[..., None]):
    def write_folder(folder):
        write_capture(folder)
        write(folder, CAMERAS, IMAGES, POINTS)

    return write_folder


def write_grid(folder):
    ts.render.OccupancyGrid((-1, -1, -1, 1, 1, 1), 8).save(folder / "grid.safetensors")


def write_state(folder):
    state = {"a": torch.ones(3), "nested": [{"step": 7, "rate": 0.5}, (None, "text")]}
    ts.nn.write_checkpoint(folder / "state.safetensors", state)


def write_picture(mode, name):
    def write(folder):
        values = np.arange(20 * 16 * 4).reshape(20, 16, 4)
        pixels = {"RGBA": values.astype(np.uint8), "RGB": values[..., :3].astype(np.uint8), "L": values[..., 0]}[mode]
        image = Image.fromarray(pixels.astype(np.uint16 if mode == "L" else np.uint8))
        image.save(folder / name)

    return write


def load_capture(load: Callable[[Path], ts.render.Capture]):
    def load_with_pictures(path):
        capture = load(path)
        for index in range(len(capture)):
            capture.load_image(index)

    return load_with_pictures


def unwrap_safetensors(whole):
    size = int.from_bytes(whole[:8], "little")
    return whole[8 : 8 + size], lambda header: struct.pack("<Q", len(header)) + header + whole[8 + size :]


def unwrap_png(whole):
    """Return the header's numbers, and how a file with others, and a right checksum, is made."""

    def wrap(numbers):
        header = b"IHDR" + (numbers + bytes(13))[:13]
        return whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]

    return whole[16:29], wrap


@dataclass(frozen=True)
class Loader:
    """How a valid file is made, and how it is read; `unwrap` opens a layer that random damage would never pass."""

    write: Callable[[Path], object]
    file: str
    load: Callable[[Path], object]
    unwrap: Callable | None = None

    def run(self, folder):
        self.load(folder if self.file in COLMAP else folder / ENTRIES.get(self.file, self.file))


COLMAP = [f"{name}.{suffix}" for name in ("cameras", "images", "points3D") for suffix in ("bin", "txt")]
ENTRIES = {"points.ply": "transforms.json", "images/a.png": "transforms.json"}
blender, colmap = load_capture(ts.render.load_blender), load_capture(ts.render.load_colmap)


LOADERS = {
    "ply": Loader(lambda d: gaussians.save_ply(d / "a.ply", splats()), "a.ply", gaussians.load_ply),
    "text ply": Loader(write_ascii_ply, "a.ply", gaussians.load_ply),
    "spz": Loader(
        lambda d: gaussians.save_spz(d / "a.spz", splats()),
        "a.spz",
        gaussians.load_spz,
        lambda whole: (gzip.decompress(whole), lambda inside: gzip.compress(inside, 1, mtime=0)),
    ),
    "splats": Loader(
        lambda d: gaussians.save_splats(d / "a.safetensors", splats()),
        "a.safetensors",
        gaussians.load_splats,
        unwrap_safetensors,
    ),
    "transforms": Loader(write_transforms, "transforms.json", blender),
    "points": Loader(write_transforms, "points.ply", blender),
    "pictures": Loader(write_transforms, "images/a.png", blender, unwrap_png),
    **{name: Loader(write_colmap(write_binary), name, colmap) for name in COLMAP[::2]},
    **{name: Loader(write_colmap(write_text), name, colmap) for name in COLMAP[1::2]},
    "configuration": Loader(
        lambda d: (d / "a.json").write_text(CONFIGURATION),
        "a.json",
        lambda path: ts.nn.create_from_config(2, 3, ts.nn.read(path)),
    ),
    "checkpoint": Loader(write_state, "state.safetensors", ts.nn.read_checkpoint, unwrap_safetensors),
    "grid": Loader(write_grid, "grid.safetensors", ts.render.OccupancyGrid.load, unwrap_safetensors),
    "png": Loader(write_picture("RGBA", "a.png"), "a.png", lambda path: load_photo(path, 8), unwrap_png),
    "16 bits": Loader(write_picture("L", "a.png"), "a.png", lambda path: load_photo(path, 8), unwrap_png),
    "jpeg": Loader(write_picture("RGB", "a.jpg"), "a.jpg", lambda path: load_photo(path, 8)),
    "tiff": Loader(write_picture("RGB", "a.tif"), "a.tif", lambda path: load_photo(path, 8)),
}


# Limits ----------------------------------------------------------------------------------------


def test_limits_are_those_of_the_page():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    limits = [_untrusted.CONFIGURATION_BYTES, _untrusted.JSON_BYTES, _untrusted.GZIP_BYTES, _untrusted.PICTURE_PIXELS]
    words = [f"{limit:,} " for limit in limits]
    words += [f"{_untrusted.JSON_DEPTH} levels; {_untrusted.JSON_DIGITS} characters"]
    words += [f"{_untrusted.GZIP_RATIO} bytes decompressed", f"{_untrusted.PIXELS_PER_BYTE} pixels for each byte"]
    words += [f"{2 * (Image.MAX_IMAGE_PIXELS or 0):,} (Pillow's"]
    assert not [word for word in words if word not in page]


def bomb_spz(count):
    def write(path):
        with gzip.GzipFile(path, "wb", mtime=0) as file:
            file.write(struct.pack("<IIIBBBB", 0x5053474E, 3, count, 0, 12, 0, 0))
            for _ in range(64):
                file.write(bytes(1 << 20))

    return write


def bomb_picture(path, side=13_000):
    """Write a picture file that has only a header; it must be refused before anything is decoded."""
    numbers = b"IHDR" + struct.pack(">IIBBBBB", side, side, 16, 0, 0, 0, 0)
    header = struct.pack(">I", 13) + numbers + struct.pack(">I", zlib.crc32(numbers))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + bytes(4) + b"IDAT")


def write_json(text):
    return lambda path: path.write_text('{"fl_x": 1, "frames": [' + text + "]}")


def write_metadata(text):
    header = json.dumps({"__metadata__": {"tinsmith": text}}).encode()
    return lambda path: path.write_bytes(struct.pack("<Q", len(header)) + header)


BOMBS = {
    "few Gaussians": ("spz", bomb_spz(5), "5 Gaussians of 20 bytes, but more than 100 bytes follow"),
    "many Gaussians": ("spz", bomb_spz((64 << 20) // 20), "3355443 Gaussians of 20 bytes; at most"),
    "pixels": (
        "png",
        bomb_picture,
        "13,000 x 13,000 = 169,000,000 pixels in 41 bytes; at most 33,554,432 are read from a file of this size",
    ),
    "pixels of a capture": ("pictures", bomb_picture, "13,000 x 13,000 = 169,000,000 pixels in 41 bytes"),
    "pixels that Pillow refuses": (
        "png",
        lambda path: bomb_picture(path, 20_000),
        "it has 400,000,000 pixels; at most 178,956,970 are read from any file",
    ),
    "remedy for pixels": ("png", bomb_picture, "Scale the picture down, for example to 5,700 x 5,700 pixels."),
    "remedy for pixels that Pillow refuses": (
        "pictures",
        lambda path: bomb_picture(path, 20_000),
        "Scale the picture down, for example to 13,300 x 13,300 pixels.",
    ),
    "PostScript": ("png", lambda path: Image.new("L", (2, 2)).save(path, "EPS"), "it is a program in PostScript"),
    "deep": ("transforms", write_json("[" * 5000), "Nested more than 200 deep"),
    "digits": ("transforms", write_json("1" + "0" * 400), "A number of more than 300 digits"),
    "many digits": ("transforms", write_json("1" + "0" * 5000), "A number of more than 300 digits"),
    "long": ("transforms", write_json(json.dumps({"file_path": "x" * 5000})), "is not the pose of a camera"),
    "NUL": ("transforms", write_json(json.dumps({"file_path": "a\0b"})), "is not the pose of a camera"),
    "deep metadata": ("checkpoint", write_metadata("[" * 5000), "Nested more than 200 deep"),
    "large": ("configuration", lambda path: path.write_bytes(bytes(1 << 21)), "2,097,152 bytes, more than 1,048,576"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bombs_are_refused(tmp_path, name):
    kind, write, words = BOMBS[name]
    loader = LOADERS[kind]
    loader.write(tmp_path)
    write(tmp_path / loader.file)
    with pytest.raises(TinsmithError) as refused:
        loader.run(tmp_path)
    assert words in str(refused.value) and str(tmp_path) in str(refused.value)


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "points"])
def test_pipes_are_refused(tmp_path, name):
    loader = LOADERS[name]
    loader.write(tmp_path)
    (tmp_path / loader.file).unlink()
    os.mkfifo(tmp_path / loader.file)
    with pytest.raises(TinsmithError):
        loader.run(tmp_path)


@pytest.mark.parametrize("name", ["ply", "spz", "splats", "checkpoint", "grid", "configuration", "transforms"])
def test_names_that_no_file_can_have(name):
    with pytest.raises(TinsmithError, match="no file can have this name"):
        LOADERS[name].load(Path("a\0b"))


# Random damage ---------------------------------------------------------------------------------

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BAD_NUMBERS = b'-1 0 nan inf -inf 1e999 1e30 1e-320 4294967295 2147483648 65536 0x10 1.5 true null "" [] {}'.split()
_BAD_NUMBERS += [b"9" * digits for digits in (20, 400, 5000)]
_BAD_BYTES = [b"\0", b"\xff", b'"', b"\\", b"\n", b" ", b"..", b"\\ud800", b"/*", b","]
_BAD_BYTES += [b"[" * 5000, b"{" * 300, b"x" * 5000]
_BAD_WORDS = [b"\xff" * 8, b"\xff" * 4, b"\0" * 8, b"\xff" * 7 + b"\x7f"]
_BAD_WORDS += [b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\0\0\xc0\x7f"]


def flip_bits(data, dice):
    damaged = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    return bytes(damaged)


def cut(data, dice):
    return data[: dice.randrange(len(data))]


def replace_number(data, dice):
    places = list(_NUMBER.finditer(data))
    if not places:
        return overwrite_word(data, dice)
    place = dice.choice(places)
    return data[: place.start()] + dice.choice(_BAD_NUMBERS) + data[place.end() :]


def overwrite_word(data, dice):
    word, begin = dice.choice(_BAD_WORDS), dice.randrange(len(data))
    return data[:begin] + word + data[begin + len(word) :]


def insert(data, dice):
    begin = dice.randrange(len(data))
    return data[:begin] + dice.choice(_BAD_BYTES) + data[begin:]


def repeat_part(data, dice):
    begin = dice.randrange(len(data))
    return data[:begin] + data[begin : begin + dice.randint(1, 40)] * dice.choice((0, 2, 50)) + data[begin:]


def mutate(data, dice):
    damages = (flip_bits, cut, replace_number, replace_number, overwrite_word, insert, repeat_part)
    for _ in range(dice.choice((1, 1, 2))):
        data = dice.choice(damages)(data or b"\0", dice)
    return data


def mutate_file(loader, whole, dice):
    if loader.unwrap is None or dice.random() < 0.3:
        return mutate(whole, dice)
    inside, wrap = loader.unwrap(whole)
    return wrap(mutate(inside, dice))


def reset_peak():
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name):
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) << 10


def try_damaged(loader, folder, count, seed):
    loader.write(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader.run(folder)  # what is valid is accepted, and what is imported once does not count
        measures = os.access("/proc/self/clear_refs", os.W_OK)
        path, dice = folder / loader.file, random.Random(seed)
        whole, before = path.read_bytes(), 0
        for number in range(count):
            path.write_bytes(mutate_file(loader, whole, dice))
            if measures and number % 25 == 0:  # resetting takes longer than loading a small file
                before = reset_peak()
            begin = time.process_time()  # a busy machine takes longer, and that is not the loader's fault
            try:
                loader.run(folder)
            except TinsmithError:
                pass
            except Exception as cause:  # noqa: BLE001  (whatever else it is, it is what is looked for)
                pytest.fail(f"file {number} of seed {seed!r}: {cause!r}: {path.read_bytes()[:400]!r}")
            spent = time.process_time() - begin
            taken = _memory("VmHWM") - before if measures else 0
            facts = f"file {number} of seed {seed!r}: {spent:.1f} s, {taken >> 20} MiB: {path.read_bytes()[:400]!r}"
            assert spent < MOST_SECONDS and taken < MOST_BYTES, facts


@pytest.mark.parametrize("name", LOADERS)
def test_damaged_files_are_refused(tmp_path, name):
    try_damaged(LOADERS[name], tmp_path, 200, find_commit())


@pytest.mark.costly
@pytest.mark.parametrize("name", LOADERS)
def test_many_damaged_files(tmp_path, name):
    try_damaged(LOADERS[name], tmp_path, 5000, f"many {find_commit()}")
