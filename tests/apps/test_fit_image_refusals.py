"""Bad input to a fit: refused before anything runs, in words that help, with nothing left behind."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tinsmith._errors import CheckpointError, EngineError, InputError
from tinsmith.apps.fit_image import _run, fit_image


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail the test if an engine is started in spite of bad input."""

    def fail(*arguments):
        raise AssertionError("the fit started")

    monkeypatch.setattr(_run, "make_renderer", fail)


def _text_file(folder):
    path = folder / "notes.jpg"
    path.write_text("no image")
    return path


def _cut_off(folder):
    path = folder / "cut.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:3000])
    return path


def _floats(folder):
    path = folder / "deep.tif"
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(path)
    return path


def _many_bits(folder):
    path = folder / "deep.tif"
    Image.fromarray(np.full((8, 8), 70000, np.int32)).save(path)
    return path


def _empty(folder):
    path = folder / "empty.png"
    path.touch()
    return path


IMAGES = {
    "missing": (lambda folder: folder / "none.jpg", "the image does not exist"),
    "a folder": (lambda folder: folder, "the image cannot be read"),
    "no image": (_text_file, "it is not an image of a known format"),
    "empty": (_empty, "it is not an image of a known format"),
    "cut off": (_cut_off, "truncated"),
    "floating point": (_floats, "its numbers are floating point (mode F)"),
    "32 bits": (_many_bits, "more than 16 bits a pixel (mode I)"),
}


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_that_cannot_be_read(options, tmp_path, kind):
    make, words = IMAGES[kind]
    path = make(tmp_path)
    with pytest.raises(InputError) as refused:
        fit_image(options(image=path))
    assert words in str(refused.value) and str(path) in str(refused.value)
    assert not options().out.exists()


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_folder_that_cannot_be_written(options, photo, inside):
    out = photo / inside  # a file stands where the folder should be
    with pytest.raises(InputError) as refused:
        fit_image(options(out=out))
    assert ("the output folder cannot be written" if inside else "--out is a file, not a folder") in str(refused.value)
    assert str(out) in str(refused.value) and "--out" in str(refused.value)


@pytest.mark.usefixtures("nothing_runs")
def test_an_image_that_the_fit_would_overwrite(options, photo, tmp_path):
    image = tmp_path / "fitted.png"
    image.write_bytes(photo.read_bytes())
    with pytest.raises(InputError, match="the image would be overwritten") as refused:
        fit_image(options(image=image, out=tmp_path / "." / ""))
    assert str(image) in str(refused.value)
    assert image.read_bytes() == photo.read_bytes()


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("present", "remedy"),
    [
        (
            ["checkpoint.safetensors", "fitted.png", "curve.png", "fit.gif"],
            "Pass --resume to continue it, --overwrite to",
        ),
        (["summary.json"], "Pass --overwrite to"),
    ],
)
def test_a_folder_that_holds_an_earlier_run(options, present, remedy):
    out = options().out
    out.mkdir()
    for name in present:
        (out / name).write_text("precious")
    with pytest.raises(InputError, match="the output folder holds an earlier run") as refused:
        fit_image(options())
    assert str(out) in str(refused.value) and remedy in str(refused.value)
    assert present[0] in str(refused.value) and (" and 1 more" in str(refused.value)) == (len(present) > 3)
    assert all((out / name).read_text() == "precious" for name in present)


@pytest.mark.usefixtures("nothing_runs")
def test_resume_and_overwrite_exclude_each_other(options):
    with pytest.raises(InputError, match="--resume and --overwrite exclude each other"):
        fit_image(options(resume=True, overwrite=True))


@pytest.mark.parametrize("name", ["gaussians", "steps", "size"])
def test_a_number_too_small(options, name):
    with pytest.raises(InputError, match=f"`{name}` is too small\n  got       0\n  expected  1 or more"):
        options(**{name: 0})


@pytest.mark.usefixtures("nothing_runs")
def test_an_engine_or_a_device_that_is_not_there(options):
    with pytest.raises(EngineError, match="there is no engine 'tachi'"):
        fit_image(options(engine="tachi"))
    with pytest.raises(InputError, match="no such device\n  device  tpu"):
        fit_image(options(device="tpu"))
    assert not options().out.exists()


@pytest.fixture(scope="module")
def finished(photo, tmp_path_factory):
    """Run a fit once. Tests copy its checkpoint and do not change it."""
    from tinsmith.apps.fit_image import FitOptions

    options = FitOptions(tmp_path_factory.mktemp("finished"), photo, gaussians=40, steps=3, size=32)
    fit_image(options)
    return options


@pytest.fixture
def resuming(finished, tmp_path):
    """Return options that resume that fit in a folder of their own, and its checkpoint there."""
    copy = tmp_path / "checkpoint.safetensors"
    copy.write_bytes((finished.out / copy.name).read_bytes())
    return dataclasses.replace(finished, out=tmp_path, steps=5, resume=True), copy


def test_a_copied_checkpoint_can_be_resumed(resuming):
    assert fit_image(resuming[0]).step == 5


def _rewrite(path, tensors=(), metadata=()):
    """Change tensors and metadata of a checkpoint; None removes one."""
    with safe_open(path, "pt") as file:
        changed = file.metadata() | dict(metadata)
    held = load_file(path) | dict(tensors)
    held, changed = ({key: value for key, value in part.items() if value is not None} for part in (held, changed))
    save_file(held, path, changed)


DAMAGES = {
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "because"),
    "empty": (lambda path: path.write_bytes(b""), "because"),
    "something else": (lambda path: path.write_text("hello " * 50), "because"),
    "of another program": (lambda path: _rewrite(path, {}, {"format": None}), "its format is None"),
    "of a later version": (lambda path: _rewrite(path, {}, {"format": "tinsmith fit-image 9"}), "fit-image 9"),
    "no step": (lambda path: _rewrite(path, {}, {"step": "three"}), "its step is 'three'"),
    "no fit": (lambda path: _rewrite(path, {}, {"fit": "["}), "which fit it belongs to"),
    "fit of another kind": (lambda path: _rewrite(path, {}, {"fit": "3"}), "which fit it belongs to"),
    "a tensor missing": (lambda path: _rewrite(path, {"angle": None}), "it has no tensor 'angle'"),
    "Adam missing": (lambda path: _rewrite(path, {"adam.pos.exp_avg": None}), "no tensor 'adam.pos.exp_avg'"),
    "another shape": (lambda path: _rewrite(path, {"pos": torch.zeros(3, 2)}), "shape (3, 2), not (40, 2)"),
    "another step": (lambda path: _rewrite(path, {}, {"step": "2"}), "'history.errors' has shape (3,), not (2,)"),
    "another dtype": (lambda path: _rewrite(path, {"angle": torch.zeros(40).half()}), "'angle' is torch.float16"),
    "no frames": (lambda path: _rewrite(path, {"history.frames": torch.zeros(3)}), "'history.frames'"),
    "not finite": (lambda path: _rewrite(path, {"angle": torch.full((40,), float("nan"))}), "not finite"),
}


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint(resuming, damage):
    options, path = resuming
    change, words = DAMAGES[damage]
    change(path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError) as refused:
        fit_image(options)
    assert "the checkpoint is broken" in str(refused.value) and words in str(refused.value)
    assert str(path) in str(refused.value) and "--resume" in str(refused.value)
    assert path.read_bytes() == before and list(options.out.iterdir()) == [path]


OTHERS = {
    "size": ({"size": 16}, "32 x 24", "this fit has 16 x 12"),
    "gaussians": ({"gaussians": 41}, "40", "this fit has 41"),
    "seed": ({"seed": 7}, "0", "this fit has 7"),
}


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_fit(resuming, what):
    change, theirs, ours = OTHERS[what]
    with pytest.raises(CheckpointError) as refused:
        fit_image(dataclasses.replace(resuming[0], **change))
    assert "the checkpoint belongs to another fit" in str(refused.value)
    line = next(line for line in str(refused.value).splitlines() if line.strip().startswith(what))
    assert theirs in line and line.endswith(f"<- {ours}")


@pytest.mark.usefixtures("nothing_runs")
def test_a_checkpoint_of_another_photograph(resuming, tmp_path):
    other = tmp_path / "other.png"
    Image.new("RGB", (60, 45), "red").save(other)
    with pytest.raises(CheckpointError) as refused:
        fit_image(dataclasses.replace(resuming[0], image=other))
    assert "disc.png" in str(refused.value) and "this fit has other.png" in str(refused.value)


def test_a_photograph_may_be_renamed(resuming, photo, tmp_path):
    renamed = tmp_path / "renamed.png"
    renamed.write_bytes(photo.read_bytes())
    assert fit_image(dataclasses.replace(resuming[0], image=renamed)).step == 5


@pytest.mark.usefixtures("nothing_runs")
def test_no_checkpoint(options):
    with pytest.raises(CheckpointError, match="there is no checkpoint to resume from") as refused:
        fit_image(options(resume=True))
    assert str(options().out) in str(refused.value)
    assert not options().out.exists()


def test_a_checkpoint_records_the_fit_it_belongs_to(finished):
    with safe_open(finished.out / "checkpoint.safetensors", "pt") as file:
        fit = json.loads(file.metadata()["fit"])
    assert fit["photograph"] == "disc.png" and fit["gaussians"] == 40
