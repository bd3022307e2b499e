"""OccupancyGrid: what it looks at, what it remembers, what it calls occupied, and that this comes back from files."""

from __future__ import annotations

import copy

import pytest
import torch

import tinsmith as ts
from tinsmith.render import OccupancyGrid

BOX = (-1.0, -0.5, 0.25, 1.0, 0.75, 2.0)
LOW, HIGH = torch.tensor(BOX[:3]), torch.tensor(BOX[3:])


def in_the_ball(x):
    return 0.5 * ((x - (LOW + HIGH) / 2).norm(dim=-1) < 0.4).float()


class Asked:
    """A field that remembers where it was asked."""

    def __init__(self, density):
        self.density, self.places = density, []

    def __call__(self, x):
        self.places.append(x)
        return self.density(x)

    def all(self):
        return torch.cat(self.places)


def cells_of(places, grid, level=0):
    """Return the numbers of the cells that places lie in."""
    middle, half = (LOW + HIGH) / 2, (HIGH - LOW) / 2 * 2**level
    cell = ((places - middle + half) / (2 * half) * grid.cells).floor().long()
    assert (cell >= 0).all() and (cell < grid.cells).all(), "a place is outside of the box"
    return (cell[:, 0] * grid.resolution[1] + cell[:, 1]) * grid.resolution[2] + cell[:, 2]


def test_a_new_grid_is_occupied_everywhere():
    grid = OccupancyGrid(BOX, (5, 4, 7), levels=2)
    assert grid.occupied.shape == (2, 5, 4, 7) and grid.occupied.all()
    assert grid.share == 1.0
    assert not list(grid.parameters())


@pytest.mark.parametrize("resolution", [(4, 4, 4), (5, 4, 7), (1, 9, 2)], ids=str)
def test_assigned_occupancy_is_read_back(resolution):
    grid = OccupancyGrid(BOX, resolution, levels=3)
    occupied = torch.rand(3, *resolution) < 0.4
    grid.occupied = occupied
    assert torch.equal(grid.occupied, occupied)
    assert grid.share == pytest.approx(occupied.float().mean().item())


def test_the_warm_up_evaluates_every_cell_once(engine):
    grid = OccupancyGrid(BOX, (6, 5, 7), levels=2, engine=engine)
    field = Asked(in_the_ball)
    grid.update(field, step=255, chunk=100)
    assert max(map(len, field.places)) <= 100
    places = field.all()
    for level in range(2):
        cells = cells_of(places[level * 210 : (level + 1) * 210], grid, level)
        assert torch.equal(cells, torch.arange(210))
        density = in_the_ball(places[level * 210 : (level + 1) * 210])
        assert torch.equal(grid.density[level].flatten(), density)
    assert torch.equal(grid.occupied, grid.density > 0.01)
    assert 0.01 < grid.share < 0.3


def test_later_updates_evaluate_random_and_occupied_cells(engine):
    grid = OccupancyGrid(BOX, 10, engine=engine)
    grid.update(in_the_ball, step=0)
    occupied = grid.occupied.flatten().nonzero()[:, 0]
    field = Asked(in_the_ball)
    grid.update(field, step=256)
    cells = cells_of(field.all(), grid)
    assert len(cells) == 250 + len(occupied)
    assert torch.equal(cells[250:], occupied)
    assert len(cells[:250].unique()) > 180  # drawn evenly: 1000 (1 - exp(-1/4)) = 221 on average
    field = Asked(in_the_ball)
    grid.update(field, step=256, fraction=0.01)
    cells = cells_of(field.all(), grid)
    assert len(cells) == 20 and torch.isin(cells[10:], occupied).all()


def test_a_cell_keeps_the_larger_of_what_it_had_and_what_is_there(engine):
    grid = OccupancyGrid(BOX, 4, decay=0.5, threshold=0.3, engine=engine)
    grid.update(lambda x: torch.full((len(x), 1), 0.8), step=0)  # (m, 1) will do
    held = torch.tensor(0.8)
    for density in (0.1, 0.1, 0.9, 0.0):
        grid.update(lambda x, density=density: torch.full((len(x),), density), step=0)
        held = torch.maximum(0.5 * held, torch.tensor(density))
        torch.testing.assert_close(grid.density, held.expand(1, 4, 4, 4))
    before = grid.density.clone()
    grid.decay_()
    torch.testing.assert_close(grid.density, 0.5 * before)


def test_a_cell_that_is_drawn_twice_decays_once_and_keeps_the_larger(engine):
    grid = OccupancyGrid(BOX, 1, decay=0.5, engine=engine)
    grid.update(lambda x: torch.ones(len(x)), step=0)
    field = Asked(lambda x: torch.linspace(0, 0.2, len(x)))
    for _ in range(2):
        grid.update(field, step=1000, fraction=1.0)  # one at random, and the occupied one: the same
    assert len(field.all()) == 4
    assert grid.density.item() == pytest.approx(0.25)
    grid.update(lambda x: torch.tensor([0.9, 0.3]), step=1000, fraction=1.0)
    assert grid.density.item() == pytest.approx(0.9)


def test_cells_that_are_not_drawn_are_unchanged(engine):
    grid = OccupancyGrid(BOX, 10, engine=engine)
    grid.update(in_the_ball, step=0)
    before = grid.density.clone()
    field = Asked(lambda x: torch.full((len(x),), 0.7))
    grid.update(field, step=1000)
    drawn = torch.zeros(1000, dtype=torch.bool)
    drawn[cells_of(field.all(), grid)] = True
    after = grid.density.flatten()
    assert (after[drawn] == 0.7).all()
    assert torch.equal(after[~drawn], before.flatten()[~drawn])


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 0.01), (0.01, None)], ids=["threshold", "mean"])
def test_the_bound_is_the_threshold_or_the_mean_if_that_is_less(engine, scale, expected):
    grid = OccupancyGrid(BOX, (6, 5, 7), levels=2, engine=engine)
    grid.density.copy_(scale * torch.rand(2, 6, 5, 7))
    grid.binarise()
    bound = grid.density.mean() if expected is None else expected
    assert torch.equal(grid.occupied, grid.density > bound)
    assert 0.2 < grid.share < 1


def test_a_generator_repeats_its_draws(engine):
    grids = [OccupancyGrid(BOX, 8, engine=engine) for _ in range(2)]
    for grid in grids:
        draw = torch.Generator().manual_seed(5)
        for step in (0, 300):
            grid.update(lambda x: x.norm(dim=-1), step=step, generator=draw)
    assert torch.equal(grids[0].density, grids[1].density)


def test_a_field_of_the_grid_keeps_no_graph():
    grid = OccupancyGrid(BOX, 4)
    weight = torch.ones(3, requires_grad=True)
    grid.update(lambda x: (x * weight).sum(-1).abs(), step=0)
    assert not grid.density.requires_grad


def filled(levels=2):
    grid = OccupancyGrid(BOX, (6, 5, 7), levels, decay=0.9, threshold=0.02)
    grid.density.copy_(torch.rand(levels, 6, 5, 7))
    grid.occupied = torch.rand(levels, 6, 5, 7) < 0.4
    return grid


def test_files_bring_everything_back(tmp_path):
    grid = filled()
    grid.save(tmp_path / "grid.safetensors")
    again = OccupancyGrid.load(tmp_path / "grid.safetensors")
    assert (again.resolution, again.levels, again.decay, again.threshold) == ((6, 5, 7), 2, 0.9, 0.02)
    assert all(torch.equal(again.state_dict()[name], held) for name, held in grid.state_dict().items())
    assert torch.equal(again.occupied, grid.occupied)


def test_a_state_dict_and_a_copy_bring_everything_back():
    grid, again = filled(), OccupancyGrid((0, 0, 0, 1, 1, 1), (6, 5, 7), 2)
    again.load_state_dict(grid.state_dict())
    for other in (again, copy.deepcopy(grid)):
        assert torch.equal(other.occupied, grid.occupied)
        assert torch.equal(other.density, grid.density) and torch.equal(other.aabb, grid.aabb)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    ts.nn.write_checkpoint(path, {"step": 3})
    with pytest.raises(ts.CheckpointError) as caught:
        OccupancyGrid.load(path)
    assert str(caught.value) == (
        f"the file holds no occupancy grid\n  file   {path}\n  holds  something else\nPass one that save() wrote."
    )
    with pytest.raises(ts.CheckpointError):
        OccupancyGrid.load(tmp_path / "none.safetensors")


REFUSED = {
    "resolution": (lambda: OccupancyGrid(BOX, 0), ts.ArgumentError, "resolution  0      <- 1 to 2^20"),
    "two resolutions": (
        lambda: OccupancyGrid(BOX, (4, 4)),
        ts.ArgumentError,
        "`resolution` or `levels` of OccupancyGrid",
    ),
    "levels": (lambda: OccupancyGrid(BOX, 4, 0), ts.ArgumentError, "levels      0      <- 1 to 16"),
    "decay": (lambda: OccupancyGrid(BOX, 4, decay=1.5), ts.ArgumentError, "`decay` is out of range"),
    "threshold": (lambda: OccupancyGrid(BOX, 4, threshold=-1), ts.ArgumentError, "`threshold` is out of range"),
    "box": (lambda: OccupancyGrid((1, 1, 1, 0, 0, 0)), ts.ShapeError, "`aabb` is not a box"),
    "box as a tensor": (lambda: OccupancyGrid(torch.zeros(6)), ts.ShapeError, "`aabb` is not a box"),
    "fraction": (
        lambda: OccupancyGrid(BOX, 4).update(in_the_ball, step=0, fraction=2.0),
        ts.ArgumentError,
        "`fraction` is out of range",
    ),
    "shape": (
        lambda: OccupancyGrid(BOX, 4).update(lambda x: x, step=0),
        ts.ShapeError,
        "`density_fn` of OccupancyGrid.update returned a wrong shape\n"
        "  expected  (64) or (64, 1)\n  got       (64, 3)\nReturn one per position.",
    ),
    "nan": (
        lambda: OccupancyGrid(BOX, 4).update(lambda x: x[:, 0] * float("nan"), step=0),
        ts.ArgumentError,
        "`density_fn` of OccupancyGrid.update returned NaN\n  expected  densities\n  got       64 NaN of 64",
    ),
    "occupied": (
        lambda: setattr(OccupancyGrid(BOX, 4), "occupied", torch.ones(1, 4, 4, 3).bool()),
        ts.ShapeError,
        "`occupied` does not fit the OccupancyGrid\n  expected  (1, 4, 4, 4), torch.bool\n"
        "  got       (1, 4, 4, 3), torch.bool",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_the_repr_of_a_grid():
    grid = OccupancyGrid((-1, -1, -1, 1, 1, 1), 8, 2)
    assert repr(grid) == "OccupancyGrid((-1, -1, -1, 1, 1, 1), resolution=(8, 8, 8), levels=2, 100.0% occupied)"


INTRINSICS = torch.tensor([[20.0, 1.5, 17.0], [0.0, 24.0, 11.0], [0.0, 0.0, 1.0]], dtype=torch.float64)


def turned(angle, place, flip):
    """Make a camera rotated about y, in OpenCV's axes (flip = 1) or OpenGL's (-1)."""
    c, s = torch.tensor(angle).cos(), torch.tensor(angle).sin()
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]]) @ torch.diag(torch.tensor([1.0, flip, flip]))
    pose[:3, 3] = torch.tensor(place)
    return pose


def seen_in_part(grid, level, poses, near, flip):
    """Return cells with a point, of many drawn at random, that projects into a 32 x 24 image."""
    cells = grid.density[0].numel()
    numbers = torch.arange(cells).repeat(200)
    places = grid._draw_positions(level, numbers, None).double()
    seen = torch.zeros(cells, dtype=torch.bool)
    for pose in poses:
        x, y, z = ((places - pose[:3, 3]) @ pose[:3, :3] * torch.tensor([1.0, flip, flip])).T
        u = (20 * x + 1.5 * y) / z + 17
        v = 24 * y / z + 11
        seen |= ((z > near) & (u > 0) & (u < 32) & (v > 0) & (v < 24)).view(200, cells).any(0)
    return seen.view(grid.resolution)


@pytest.mark.parametrize(("convention", "flip"), [("opencv", 1.0), ("opengl", -1.0)])
def test_cells_that_a_camera_sees_are_never_marked_and_few_others_stay(convention, flip):
    grid = OccupancyGrid(BOX, (8, 9, 10), levels=2)
    poses = torch.stack([turned(0.3, (0.1, 0.2, 0.3), flip), turned(-1.1, (0.9, 0.0, 0.5), flip)])
    grid.mark_invisible_cells(poses, INTRINSICS, 32, 24, near=0.2, convention=convention)
    for level in range(2):
        seen, kept = seen_in_part(grid, level, poses, 0.2, flip), grid.occupied[level]
        assert torch.equal(grid.density[level] < 0, ~kept)
        assert (kept | ~seen).all()
        assert 0 < (kept & ~seen).sum() < 0.25 * seen.numel()
        assert (~kept).sum() > 0.3 * (~seen).sum(), ((~kept).sum(), (~seen).sum())


def test_marked_cells_stay_empty_and_are_not_evaluated(engine):
    grid = OccupancyGrid(BOX, (6, 5, 7), threshold=0.5, engine=engine)
    grid.mark_invisible_cells(turned(0.0, (0.0, 0.0, 0.9), 1.0), INTRINSICS, 32, 24)
    marked = grid.density < 0
    assert 0 < marked.sum() < marked.numel()
    for step in (0, 1000):
        field = Asked(lambda x: torch.ones(len(x)))
        grid.update(field, step=step)
        grid.decay_()
        grid.binarise()
        assert not marked.flatten()[cells_of(field.all(), grid)].any()
        assert torch.equal(grid.density == -1, marked)
        assert torch.equal(grid.occupied, ~marked)


def test_the_mean_is_that_of_the_visible_cells(engine):
    grid = OccupancyGrid(BOX, 4, threshold=10.0, engine=engine)
    grid.density[0, 0, 0] = torch.tensor([-1.0, -1.0, 0.4, 0.6])
    grid.density[0, 1:] = -1.0
    grid.density[0, 0, 1:] = -1.0
    grid.binarise()
    assert grid.occupied.flatten().nonzero().tolist() == [[3]]  # 0.6 is above the mean of 0.4 and 0.6, 0.4 is not


def test_marks_are_replaced_by_those_of_another_call():
    grid = OccupancyGrid(BOX, 4)
    grid.mark_invisible_cells(turned(0.0, (0.0, 0.0, 9.0), 1.0), INTRINSICS, 32, 24)
    assert not grid.occupied.any()
    grid.update(lambda x: torch.ones(len(x)), step=0)  # nothing to ask for
    assert (grid.density == -1).all()
    grid.mark_invisible_cells(turned(0.0, (0.0, 0.0, -90.0), 1.0), 0.1 * INTRINSICS, 32, 24)
    assert grid.occupied.all() and (grid.density == 0).all()


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("convention", {"convention": "maya"}),
        ("less than 1 pixel", {"width": 0}),
        ("intrinsics", {"intrinsics": torch.eye(2)}),
    ],
)
def test_cameras_that_cannot_be_are_refused(words, changes):
    given = {"poses": torch.eye(4), "intrinsics": INTRINSICS, "width": 32, "height": 24} | changes
    with pytest.raises((ts.ArgumentError, ts.ShapeError), match=words):
        OccupancyGrid(BOX, 4).mark_invisible_cells(**given)
