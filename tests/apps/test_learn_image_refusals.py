"""Bad files to learn-image: refused before anything runs, in words that help, with nothing left behind."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tinsmith import CheckpointError, ConfigError, EngineError, InputError
from tinsmith.apps.learn_image import _run, learn_image

from .conftest import ARRAY, FREQUENCY, GRID


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail the test if a run starts in spite of bad input."""

    def fail(*arguments):
        raise AssertionError("the run started")

    monkeypatch.setattr(_run, "NetworkLearner", fail)


@pytest.mark.usefixtures("nothing_runs")
def test_missing_files_and_invalid_json_are_refused(learning, tmp_path):
    def refused(kind, **changes):
        with pytest.raises(kind) as caught:
            learn_image(dataclasses.replace(learning(), **changes))
        assert not learning().out.exists()
        return str(caught.value)

    assert "the image does not exist" in refused(InputError, image=tmp_path / "none.jpg")
    words = refused(ConfigError, config="hash_grid")
    assert "there is no such configuration" in words and "Did you mean `hash-grid`?" in words
    words = refused(ConfigError, config=tmp_path / "mine.json")
    assert "mine.json" in words and "frequency, hash-grid, networks" in words
    broken = tmp_path / "broken.json"
    broken.write_text('{"loss": {"otype": "L2"}\n  "steps": 3}')
    words = refused(ConfigError, config=broken)
    assert str(broken) in words and "line 2" in words
    assert "no such device" in refused(InputError, device="tpu")
    assert "there is no engine 'tachi'" in refused(EngineError, engine="tachi")


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 0), ("batch_size", 0), ("size", 0), ("seed", -1), ("blocks", (2, 0))]
)
def test_a_number_too_small(learning, name, value):
    with pytest.raises(InputError, match=f"`{name}` is too small"):
        learning(**{name: value})


@pytest.mark.usefixtures("nothing_runs")
def test_overwriting_the_input_is_refused(learning, photo, configuration, tmp_path):
    image = tmp_path / "learned.png"
    image.write_bytes(photo.read_bytes())
    with pytest.raises(InputError, match="the image would be overwritten"):
        learn_image(learning(image=image, out=tmp_path))
    config = tmp_path / "summary.json"
    config.write_text(configuration(GRID).read_text())
    with pytest.raises(InputError, match="the configuration would be overwritten"):
        learn_image(dataclasses.replace(learning(out=tmp_path), config=config))
    with pytest.raises(InputError, match="the output folder cannot be written"):
        learn_image(learning(out=photo / "deeper"))


@pytest.fixture
def stopped(learning):
    """Return options that resume a run of five steps, and its checkpoint."""
    options = learning(GRID, steps=5)
    learn_image(options)
    return dataclasses.replace(options, steps=8, resume=True), options.out / "checkpoint.safetensors"


def test_a_copied_checkpoint_can_be_resumed(stopped):
    assert learn_image(stopped[0]).step == 8


def _rewrite(path, retold=str, without=None):
    """Change what a checkpoint tells of its tensors, or leave one out."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()["tinsmith"]
    tensors = {name: tensor for name, tensor in load_file(path).items() if name != without}
    save_file(tensors, path, {"tinsmith": retold(metadata)})


DAMAGES = {
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "because"),
    "empty": (lambda path: path.write_bytes(b""), "because"),
    "text": (lambda path: path.write_text("hello " * 50), "because"),
    "of another program": (lambda path: save_file({"a": torch.zeros(2)}, path), "tinsmith did not write it"),
    "of a later version": (
        lambda path: _rewrite(path, lambda told: told.replace("learn-image 1", "learn-image 9")),
        "its format is not 'tinsmith learn-image 1'",
    ),
    "a tensor missing": (lambda path: _rewrite(path, without="trainer.model.params"), "KeyError"),
}


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint(learning, photo, damage, tmp_path):
    options = learning(out=tmp_path / "resumed", resume=True)
    path = options.out / "checkpoint.safetensors"
    path.parent.mkdir()
    path.write_bytes(_checkpoint_of(learning, tmp_path))
    change, words = DAMAGES[damage]
    change(path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError) as refused:
        learn_image(options)
    assert "the checkpoint is broken" in str(refused.value) and words in str(refused.value)
    assert str(path) in str(refused.value) and "--resume" in str(refused.value)
    assert "Pass an intact file" not in str(refused.value)
    assert path.read_bytes() == before and list(options.out.iterdir()) == [path]


def _checkpoint_of(learning, tmp_path, cache={}):  # noqa: B006  (one run for all damages)
    if not cache:
        with pytest.MonkeyPatch.context() as patch:
            from tinsmith.apps.learn_image._learner import NetworkLearner

            patch.setattr(_run, "NetworkLearner", NetworkLearner)
            options = learning(steps=2, out=tmp_path / "made")
            learn_image(options)
            cache["bytes"] = (options.out / "checkpoint.safetensors").read_bytes()
    return cache["bytes"]


OTHERS = {
    "encoding": ({"config": FREQUENCY}, "encoding"),
    "an array": ({"config": ARRAY}, "grid_shape"),
    "size": ({"size": 20}, "size"),
    "seed": ({"seed": 7}, "seed"),
    "batch": ({"batch_size": 3}, "batch_size"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_run(stopped, learning, what, monkeypatch):
    change, key = OTHERS[what]
    options = learning(**({"steps": 8, "resume": True} | change))
    with pytest.raises(CheckpointError, match="the checkpoint belongs to another run") as refused:
        learn_image(options)
    line = next(line for line in str(refused.value).splitlines() if line.strip().startswith(key))
    assert "<- this run has" in line


@pytest.mark.parametrize(
    ("part", "otype", "key", "values"),
    [
        ("network", "MLP", "n_neurons", (8, 9)),
        ("optimizer", "Adam", "skip_zero_grad_non_matrix_params", (True, False)),
    ],
)
def test_the_differing_key_of_another_configuration_is_shown(part, otype, key, values, learning):
    first, second = ({**FREQUENCY, part: {"otype": otype, key: value}} for value in values)
    learn_image(learning(first, steps=1))
    with pytest.raises(CheckpointError) as refused:
        learn_image(learning(second, steps=2, resume=True))
    row = next(line for line in str(refused.value).splitlines() if line.strip().startswith(part))
    sides = row.split("<- this run has")
    assert [f'"{key}": {json.dumps(value)}' in side for value, side in zip(values, sides, strict=True)] == [True, True]


def test_another_photograph_and_a_renamed_one(stopped, photo, tmp_path):
    options, _ = stopped
    other = tmp_path / "other.png"
    Image.new("RGB", (60, 45), "red").save(other)
    with pytest.raises(CheckpointError, match="this run has other.png"):
        learn_image(dataclasses.replace(options, image=other))
    renamed = tmp_path / "renamed.png"
    renamed.write_bytes(photo.read_bytes())
    assert learn_image(dataclasses.replace(options, image=renamed)).step == 8


@pytest.mark.usefixtures("nothing_runs")
def test_no_checkpoint(learning):
    with pytest.raises(CheckpointError, match="there is no checkpoint to resume from"):
        learn_image(learning(resume=True))
    assert not learning().out.exists()
