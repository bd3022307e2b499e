"""learn-image itself: it gets better, writes what it says, and goes on where it was stopped."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch
from PIL import Image

from support.folders import StopAt, list_names, read_contents, read_pixels, read_without_times
from tinsmith import ConfigError
from tinsmith.apps._film import flat_psnr
from tinsmith.apps._photo import load_photo
from tinsmith.apps._pictures import draw_error_map
from tinsmith.apps._training import Training
from tinsmith.apps.learn_image import LearnOptions, _learner, find_shipped_configs, learn_image
from tinsmith.apps.learn_image._blocks import Blocks
from tinsmith.apps.learn_image._learner import NetworkLearner
from tinsmith.apps.learn_image._recipe import resolve_recipe
from tinsmith.nn import read_checkpoint

from .conftest import ARRAY, FREQUENCY, GRID

FILES = {
    "learned.png",
    "error.png",
    "comparison.png",
    "learning.gif",
    "curve.png",
    "report.html",
    "summary.json",
    "checkpoint.safetensors",
}
KINDS = {
    "hash grid": GRID,
    "frequency": FREQUENCY,
    "array": ARRAY,
    "array of hash grids": GRID | {"grid_shape": [2, 2]},
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_improves_and_writes_the_files_it_lists(engine, learning, kind, photo):
    seen = []
    reached = learn_image(learning(KINDS[kind], engine=engine), watch=lambda *state: seen.append(state))
    steps, totals, psnrs = zip(*seen, strict=True)
    assert steps == tuple(range(41)) and set(totals) == {40}
    assert psnrs[-1] > psnrs[1] + 6
    assert (reached.step, reached.steps, reached.interrupted) == (40, 40, False)
    out = learning().out
    assert {path.name for path in reached.files} == list_names(out) == FILES
    learned = read_pixels(out / "learned.png")
    assert learned.shape == (36, 48, 3)
    with Image.open(photo) as original:
        original.thumbnail((48, 48), Image.Resampling.LANCZOS)
        error = np.square((np.asarray(original, float) - learned) / 255).mean()
    assert reached.psnr == pytest.approx(-10 * np.log10(error))
    assert reached.psnr == pytest.approx(psnrs[-1], abs=3)
    with Image.open(out / "learning.gif") as film:
        assert film.n_frames > 10 and film.size == (48, 36)


@pytest.mark.costly
def test_the_summary_has_the_options_and_results(learning):
    reached = learn_image(learning(ARRAY))
    summary = json.loads((learning().out / "summary.json").read_text())
    assert summary["psnr_db"] == reached.psnr and summary["seconds"] == reached.seconds > 0
    assert summary["photograph"] == "disc.png" and (summary["width"], summary["height"]) == (48, 36)
    assert summary["grid_shape"] == [3, 5] and summary["batch_size"] == 64 and summary["step"] == summary["steps"] == 40
    assert summary["parameters"] == 15 * (8 * 16 + 16 + 16 * 3 + 3)
    assert summary["encoding"] == {"otype": "Frequency", "n_frequencies": 2}
    assert summary["network"]["activation"] == "ReLU"  # defaults are written out


@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(engine, learning, kind, tmp_path):
    whole = learning(KINDS[kind], engine=engine, out=tmp_path / "whole")
    learn_image(whole)
    halves = dataclasses.replace(whole, out=tmp_path / "halves")
    stopped = learn_image(halves, watch=StopAt(17))
    assert stopped.interrupted and stopped.step == 17
    assert list_names(halves.out) == FILES
    torch.manual_seed(99)  # the checkpoint, not chance, says how it goes on
    resumed = learn_image(dataclasses.replace(halves, resume=True))
    assert resumed.step == 40 and not resumed.interrupted
    assert read_without_times(halves.out) == read_without_times(whole.out)


def test_a_run_can_be_stopped_before_the_first_step(learning):
    stopped = learn_image(learning(), watch=StopAt(0))
    assert stopped.step == 0 and list_names(learning().out) == FILES
    assert learn_image(learning(resume=True)).step == 40


def test_a_finished_run_can_be_continued(learning):
    learn_image(learning(steps=20))
    for steps in (20, 10):
        again = learn_image(learning(steps=steps, resume=True))
        assert again.step == 20 and again.seconds == 0 and again.files == ()
    assert json.loads((learning().out / "summary.json").read_text())["steps"] == 20
    assert learn_image(learning(steps=30, resume=True)).step == 30


def test_the_same_seed_gives_the_same_run(learning, tmp_path):
    for name, seed in (("one", 1), ("same", 1), ("two", 2)):
        learn_image(learning(ARRAY, out=tmp_path / name, seed=seed, steps=3))
    assert read_without_times(tmp_path / "one") == read_without_times(tmp_path / "same")
    assert read_contents(tmp_path / "one")["learned.png"] != read_contents(tmp_path / "two")["learned.png"]


def test_options_go_before_the_configuration(learning):
    settled = resolve_recipe(learning(ARRAY, steps=7, batch_size=9, blocks=(2, 4)))
    assert (settled.steps, settled.batch_size, settled.grid_shape) == (7, 9, (2, 4))
    settled = resolve_recipe(learning(ARRAY))
    assert (settled.steps, settled.batch_size, settled.grid_shape) == (40, 64, (3, 5))
    assert resolve_recipe(learning(FREQUENCY, blocks=(2, 2))).grid_shape == (2, 2)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["hash-grid", "networks", "frequency"])
def test_shipped_configurations(learning, name):
    assert set(find_shipped_configs()) == {"hash-grid", "networks", "frequency"}
    settled = resolve_recipe(dataclasses.replace(learning(), config=name))
    assert settled.name == name and settled.loss.otype == "L2"
    reached = learn_image(dataclasses.replace(learning(), config=name, steps=2, batch_size=32))
    assert reached.step == 2


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_on_cuda(engine, learning, kind):
    reached = learn_image(learning(KINDS[kind], engine=engine, device="cuda"))
    assert reached.psnr > 15 and list_names(learning().out) == FILES


# Blocks --------------------------------------------------------------------------------------


@pytest.fixture
def seen(photo):
    return load_photo(photo, 48)  # 36 rows, 48 columns


@pytest.mark.parametrize("grid", [(1, 1), (3, 5), (36, 48), (7, 11)])
def test_blocks_tile_the_whole_image(seen, grid):
    blocks = Blocks(seen, grid, "cpu")
    assert blocks.rows[0] == blocks.columns[0] == 0 and (blocks.rows[-1], blocks.columns[-1]) == (36, 48)
    assert (len(blocks.rows), len(blocks.columns)) == (grid[0] + 1, grid[1] + 1)
    down, across = torch.meshgrid(torch.arange(36.0), torch.arange(48.0), indexing="ij")
    places = blocks.assemble_image(blocks.positions)
    for row, column in ((0, 0), (grid[0] - 1, grid[1] - 1), (grid[0] // 2, grid[1] // 2)):
        top, bottom = blocks.rows[row : row + 2]
        left, right = blocks.columns[column : column + 2]
        inside = places[top:bottom, left:right]
        torch.testing.assert_close(inside[..., 0], (across[top:bottom, left:right] - left + 0.5) / (right - left))
        torch.testing.assert_close(inside[..., 1], (down[top:bottom, left:right] - top + 0.5) / (bottom - top))


@pytest.mark.parametrize("grid", [(1, 1), (3, 5), (36, 48)])
@pytest.mark.parametrize("every", [2, 5])
def test_thinned_blocks_keep_the_positions_of_their_pixels(seen, grid, every):
    whole, some = Blocks(seen, grid, "cpu"), Blocks(seen, grid, "cpu", every)
    assert some.pixels.shape[:2] == (some.rows[-1], some.columns[-1])
    assert len(some.rows) == grid[0] + 1 and all(a < b for a, b in itertools.pairwise(some.rows))
    colors = some.assemble_image(some._targets)
    assert torch.equal((colors * 255).round().to(torch.uint8), some.pixels)
    for block in {0, grid[0] * grid[1] // 2, grid[0] * grid[1] - 1}:
        down, across = _pixels_at(whole, block, some.positions[block])
        assert torch.equal(seen.pixels[down, across].float() / 255, some._targets[block])


def test_frames_of_a_large_photograph_are_small(learning, monkeypatch):
    monkeypatch.setattr(_learner, "_LOOK_SIDE", 20)
    frames = []
    options = learning(ARRAY)
    learner = NetworkLearner(load_photo(options.image, 48), resolve_recipe(options), 0, None, "cpu")
    training = Training(learner)
    for _ in range(3):
        training.run_training_step()
    frames = training.history.frames
    assert frames[0].shape == learner.looked_at.pixels.shape and frames[0].shape[0] < 20
    assert learner.image().shape == (36, 48, 3)
    reached = learn_image(options)
    assert read_pixels(options.out / "learned.png").shape == (36, 48, 3) and reached.psnr > 15


def test_a_summary_can_be_used_as_a_configuration(learning, tmp_path):
    learn_image(learning(ARRAY, steps=3))
    (learning().out / "summary.json").rename(tmp_path / "again.json")
    again = resolve_recipe(dataclasses.replace(learning(), config=tmp_path / "again.json"))
    assert again.identity() == resolve_recipe(learning(ARRAY)).identity() and again.steps == 3


def test_a_run_that_learned_nothing_says_so(learning):
    wild = GRID | {"optimizer": {"otype": "Adam", "learning_rate": 1000.0}}
    reached = learn_image(learning(wild))
    assert reached.learned_nothing and not learn_image(learning(GRID, overwrite=True)).learned_nothing
    assert reached.flat == pytest.approx(flat_psnr(load_photo(learning().image, 48).pixels))


def _pixels_at(blocks, block, positions):
    """Return rows and columns, in the photograph, of positions in a block."""
    row, column = divmod(block, blocks.grid_shape[1])
    high, wide = blocks.rows[row + 1] - blocks.rows[row], blocks.columns[column + 1] - blocks.columns[column]
    down, across = positions[:, 1] * high - 0.5, positions[:, 0] * wide - 0.5
    torch.testing.assert_close(torch.stack([down, across]), torch.stack([down, across]).round())  # pixels' centers
    return blocks.rows[row] + down.round().long(), blocks.columns[column] + across.round().long()


def test_sampled_pixels_belong_to_their_block(seen):
    blocks = Blocks(seen, (7, 11), "cpu")
    positions, colors = blocks.draw_pixels(500, torch.Generator().manual_seed(0))
    assert positions.shape == (77, 500, 2) and colors.shape == (77, 500, 3)
    for block in (0, 38, 76):
        down, across = _pixels_at(blocks, block, positions[block])
        row, column = divmod(block, 11)
        assert set(down.tolist()) == set(range(blocks.rows[row], blocks.rows[row + 1]))  # all of them, no others
        assert set(across.tolist()) == set(range(blocks.columns[column], blocks.columns[column + 1]))
        assert torch.equal(colors[block], seen.pixels[down, across].float() / 255)
    some, theirs = blocks.draw_pixels(50, torch.Generator().manual_seed(0), torch.tensor([38, 5]))
    for block, where, color in zip((38, 5), some, theirs, strict=True):
        down, across = _pixels_at(blocks, block, where)
        assert torch.equal(color, seen.pixels[down, across].float() / 255)


def test_the_mean_of_each_block_is_that_of_its_pixels(seen):
    blocks = Blocks(seen, (7, 11), "cpu")
    image = torch.rand(36, 48, generator=torch.Generator().manual_seed(0))
    rows, columns = blocks.rows, blocks.columns
    for block, mean in enumerate(blocks.mean(image).tolist()):
        row, column = divmod(block, 11)
        inside = image[rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
        assert mean == pytest.approx(inside.mean().item())


def test_a_single_block_is_learned(engine, learning, seen):
    learner = NetworkLearner(seen, resolve_recipe(learning(ARRAY)), 0, engine, "cpu")
    training = Training(learner)
    for _ in range(5):
        training.run_training_step()
    model, before = learner.trainer.model, learner.image()
    weights, counts = model.params.detach().clone(), learner.trainer.optimizer.counts.clone()
    learner.train_block(1, 3, 30)
    changed = (model.params.detach() != weights).flatten(1).any(1)
    assert changed.nonzero().flatten().tolist() == [1 * 5 + 3]
    assert (learner.trainer.optimizer.counts - counts).tolist() == [30 if block == 8 else 0 for block in range(15)]
    after, blocks = learner.image(), learner.blocks
    inside = torch.zeros(36, 48, dtype=torch.bool)
    inside[blocks.rows[1] : blocks.rows[2], blocks.columns[3] : blocks.columns[4]] = True
    assert torch.equal(after[~inside], before[~inside])
    assert learner.psnr_by_block(after)[8] > learner.psnr_by_block(before)[8] + 1
    assert training.step == 5


@pytest.mark.parametrize("way", ["saved", "handed over"])
def test_a_separately_trained_block_is_in_the_checkpoint(engine, learning, seen, tmp_path, way):
    settled, path = resolve_recipe(learning(ARRAY)), tmp_path / "run.safetensors"
    straight, resumed = (Training(NetworkLearner(seen, settled, 0, engine, "cpu")) for _ in range(2))
    for _ in range(4):
        straight.run_training_step()
    straight.learner.train_block(2, 2, 7)
    if way == "saved":
        straight.learner.trainer.save(path, {"training": straight.state()})
        state = read_checkpoint(path)
    else:
        state = copy.deepcopy(
            {"trainer": straight.learner.trainer.state_dict(), "extra": {"training": straight.state()}}
        )
    resumed.learner.trainer.load_state_dict(state["trainer"])
    resumed.restore(state["extra"]["training"])
    for training in (straight, resumed):
        training.run_training_step()
        training.learner.train_block(0, 4, 3)
        training.learner.train_block(2, 2, 3)
        training.run_training_step()
    assert torch.equal(straight.learner.trainer.model.params, resumed.learner.trainer.model.params)
    assert torch.equal(straight.learner.image(), resumed.learner.image())  # of EMA's averages


def test_the_error_map_is_black_where_nothing_is_wrong(seen):
    assert not np.asarray(draw_error_map(seen.pixels, seen.pixels)).max(-1)[1:].max() > 4
    wrong = seen.pixels.clone()
    wrong[3, 4] = 255 - wrong[3, 4]
    shown = np.asarray(draw_error_map(wrong, seen.pixels)).sum(-1)
    assert np.unravel_index(shown.argmax(), shown.shape) == (3, 4)


# Refusals ------------------------------------------------------------------------------------

BAD = {
    "an unknown part": ({"netwerk": {}}, ("configuration.json: netwerk", "Did you mean `network`?")),
    "an unknown key": ({"encoding": {"otype": "HashGrid", "n_level": 3}}, ("configuration.json: encoding.n_level`",)),
    "an unknown otype": ({"loss": {"otype": "L3"}}, ("configuration.json: loss.otype",)),
    "a value": ({"network": {"n_neurons": "many"}}, ("configuration.json: network.n_neurons", '"many"')),
    "nested": (
        {"optimizer": {"otype": "EMA", "nested": {"otype": "Adam", "lr": 1}}},
        ("configuration.json: optimizer.nested.lr",),
    ),
    "a grid": ({"grid_shape": [3]}, ("configuration.json: grid_shape", "[3]", "rows and columns")),
    "another grid": ({"grid_shape": [3, 0]}, ("configuration.json: grid_shape", "[3, 0]")),
    "steps": ({"steps": 0.5}, ("configuration.json: steps", "0.5", "1 or more")),
    "a batch": ({"batch_size": True}, ("configuration.json: batch_size", "true")),
    "directions": ({"encoding": {"otype": "SphericalHarmonics"}}, ("configuration.json: encoding", "2")),
    "too many blocks": (
        {"grid_shape": [2, 49], "encoding": {"otype": "Identity"}},
        ("2 rows, 49 columns", "36 rows, 48 columns", "--blocks 2x2"),
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_configuration_that_does_not_fit_is_refused_by_file_and_key(learning, configuration, what):
    change, words = BAD[what]
    options = dataclasses.replace(learning(), config=configuration(change))
    with pytest.raises(ConfigError) as refused:
        learn_image(options)
    for word in words:
        assert word in str(refused.value)
    assert not options.out.exists()


@pytest.mark.costly
def test_the_hash_grid_learns_the_default_photograph(tmp_path):
    reached = learn_image(LearnOptions(tmp_path))
    # The bar is 30 dB in three minutes on two cores; 41.6 dB in 36 s measured, docs/learn-image.md.
    assert reached.psnr > 35 and reached.seconds < 180
    assert read_pixels(tmp_path / "learned.png").shape == (512, 437, 3)
