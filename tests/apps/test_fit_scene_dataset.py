"""Datasets: what is read, and how broken ones are refused, by file and entry."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from support.colmap import write_binary
from tinsmith import InputError
from tinsmith.apps.fit_scene import _run, fit_scene
from tinsmith.apps.scenes._dataset import read_dataset
from tinsmith.render.captures import convert_to_viewmat

from .conftest import small_views


@pytest.fixture
def folder(scene_folder, tmp_path):
    """Copy the dataset into a folder that a test may break."""
    return shutil.copytree(scene_folder, tmp_path / "mine")


def change(folder, how, name="transforms_train.json"):
    """Change what a file of a folder tells."""
    path = folder / name
    whole = json.loads(path.read_text())
    how(whole)
    path.write_text(json.dumps(whole))


# What is read ----------------------------------------------------------------------------------


def test_a_written_dataset_is_read_back(scene_folder):
    train, test = small_views()
    read = read_dataset(scene_folder, 64)
    for ours, theirs in ((read.train, train), (read.test, test)):
        assert ours.names == theirs.names
        assert torch.equal(ours.pictures, theirs.pictures) and torch.equal(ours.poses, theirs.poses)
        torch.testing.assert_close(ours.intrinsics, theirs.intrinsics)
    assert read.name == "solids" and read.is_transparent


def test_transparent_pictures_are_blended_with_a_background(scene_folder):
    views = read_dataset(scene_folder, 64).test
    picture = views.pictures[0].double() / 255
    for ground in ([1.0, 1.0, 1.0], [0.2, 0.5, 0.1]):
        expected = picture[..., :3] * picture[..., 3:] + (1 - picture[..., 3:]) * torch.tensor(ground).double()
        torch.testing.assert_close(views.blend_with(torch.tensor(ground))[0].double(), expected, atol=1e-6, rtol=0)


def test_large_pictures_are_shrunk_with_their_cameras(folder):
    draw = np.random.default_rng(0)
    for number in range(15):
        noise = draw.integers(0, 256, (40, 48, 4), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"views/{number}.png")
    whole, small = read_dataset(folder, 48), read_dataset(folder, 24)
    assert (small.width, small.height) == (24, 20)
    expected = whole.train.intrinsics / 2
    expected[:, 2, 2] = 1
    torch.testing.assert_close(small.train.intrinsics, expected)
    # Laid on a ground first and then shrunk, or the other way round: the same.
    ground = torch.tensor([0.3, 0.9, 0.1])
    means = whole.train.blend_with(ground).unflatten(1, (20, 2)).unflatten(3, (24, 2)).mean((2, 4))
    assert (small.train.blend_with(ground) - means).abs().max() < 0.01


def test_intrinsics_are_of_the_file_or_of_the_frame(folder):
    def tell(whole):
        del whole["camera_angle_x"]
        whole |= {"fl_x": 30.0, "fl_y": 28, "cx": 11.5, "cy": 9.0, "w": 24, "h": 20, "k1": 0.0}
        whole["frames"][2] |= {"fl_x": 40.0, "fl_y": None}
        whole["frames"][3] |= {"camera_model": "OPENCV"}

    change(folder, tell)
    matrices = read_dataset(folder, 64).train.intrinsics
    assert matrices[0].tolist() == [[30, 0, 11.5], [0, 28, 9], [0, 0, 1]]
    assert matrices[2].tolist() == [[40, 0, 11.5], [0, 28, 9], [0, 0, 1]]


def test_focal_lengths_from_angles(folder):
    change(folder, lambda whole: whole.update(camera_angle_x=0.5))
    matrices = read_dataset(folder, 64).train.intrinsics
    torch.testing.assert_close(matrices[0, 0, 0].item(), 12 / math.tan(0.25))
    assert matrices[0, 0, 0] == matrices[0, 1, 1]
    change(folder, lambda whole: whole.update(camera_angle_y=0.4))
    assert read_dataset(folder, 64).train.intrinsics[0, 1, 1].item() == pytest.approx(10 / math.tan(0.2))


def test_one_file_for_all_views(folder):
    (folder / "transforms_test.json").unlink()
    held_out = read_dataset(folder, 64)
    assert held_out.test.names == ("views/0.png", "views/10.png") and len(held_out.train) == 10
    (folder / "transforms_train.json").rename(folder / "transforms.json")
    assert read_dataset(folder, 64).digest == held_out.digest
    shutil.copy(folder / "transforms.json", folder / "transforms_train.json")
    shutil.copy(folder / "transforms.json", folder / "transforms_val.json")
    assert len(read_dataset(folder, 64).test) == 12


def test_pictures_of_other_modes_and_formats_are_read(folder):
    for number, kind in ((0, "RGB"), (1, "L"), (3, "P")):
        with Image.open(folder / f"views/{number}.png") as image:
            image.convert(kind).save(folder / f"views/{number}.png")
    with Image.open(folder / "views/4.png") as image:
        image.convert("RGB").save(folder / "views/4.jpg")
    (folder / "views/4.png").unlink()
    change(folder, lambda whole: whole["frames"][0].update(transform_matrix=whole["frames"][0]["transform_matrix"][:3]))
    read = read_dataset(folder, 64).train
    assert read.pictures.shape == (12, 20, 24, 4) and read.names[3] == "views/4.jpg"
    assert read.pictures[0, ..., 3].min() == 255


def test_pictures_are_undistorted(folder):
    """A lens of the file is that of all views: sides are a pixel shorter, and the middle of a picture stays."""
    taken = read_dataset(folder, 64)
    for name in ("transforms_train.json", "transforms_test.json"):
        change(folder, lambda whole: whole.update(k1=0.1), name)
    straight = read_dataset(folder, 64)
    assert straight.train.pictures.shape == (12, 19, 23, 4) and straight.test.pictures.shape[1:] == (19, 23, 4)
    assert (straight.train.intrinsics[:, 0, 0] > taken.train.intrinsics[:, 0, 0]).all()
    middle = straight.train.pictures[:, 9:11, 11:13].double() - taken.train.pictures[:, 9:11, 11:13].double()
    assert middle.abs().mean() < 0.1 * (straight.train.pictures.double() - 128).abs().mean()


def test_a_missing_picture_is_left_out(folder):
    change(folder, lambda whole: whole["frames"][4].update(file_path="views/99"))
    with pytest.warns(UserWarning, match="1 of 12 are missing(.|\n)*views/99"):
        read = read_dataset(folder, 64).train
    assert len(read.names) == 11


# What is refused -------------------------------------------------------------------------------


def _frame(number, **fields):
    return lambda whole: whole["frames"][number].update(fields)


def _matrix(how):
    def tell(whole):
        matrix = np.array(whole["frames"][5]["transform_matrix"])
        whole["frames"][5]["transform_matrix"] = how(matrix)

    return tell


def _turned(matrix, **changes):
    matrix = matrix.copy()
    for name, value in changes.items():
        matrix[int(name[1]), int(name[2])] = value
    return matrix.tolist()


TOLD = {
    "no path": (_frame(4, file_path=7), ("frames[4]", "names no picture")),
    "no object": (lambda whole: whole["frames"].insert(1, "r_0"), ("frames[1]", "a text")),
    "no matrix": (_frame(5, transform_matrix=None), ("frames[5]", "transform_matrix", "nothing", "4 rows of 4")),
    "rows": (_matrix(lambda m: m[:2].tolist()), ("frames[5]", "2 rows of 4")),
    "columns": (_matrix(lambda m: m[:, :3].tolist()), ("frames[5]", "4 rows of 3")),
    "ragged": (_matrix(lambda m: [*m[:3].tolist(), 0]), ("frames[5]", "4 rows of 4, ?")),
    "nan": (_matrix(lambda m: _turned(m, m13=math.nan)), ("frames[5]", "row 1", "not all are finite")),
    "a text": (_matrix(lambda m: [["1", 0, 0, 0], *m[1:].tolist()]), ("frames[5]", "row 0", "'1'")),
    "the last row": (_matrix(lambda m: _turned(m, m30=0.5)), ("frames[5]", "row 3", "not 0 0 0 1")),
    "scaled": (_matrix(lambda m: (m * [[1.1, 1.1, 1.1, 1]]).tolist()), ("frames[5]", "0.21 away from the identity")),
    "mirrored": (_matrix(lambda m: (m * [[-1, 1, 1, 1]]).tolist()), ("frames[5]", "it is a reflection")),
    "no frames": (lambda whole: whole.update(frames=[]), ("has no frames", "transforms_train.json")),
    "no list": (lambda whole: whole.update(frames={}), ("has no frames",)),
    "no focal length": (lambda whole: whole.pop("camera_angle_x"), ("frames[0]", "camera_angle_x or fl_x")),
    "an angle": (lambda whole: whole.update(camera_angle_x=45), ("camera_angle_x", "45", "radians")),
    "a focal length": (_frame(3, fl_x=-2), ("frames[3]", "`fl_x`", "-2", "above 0")),
    "a middle": (_frame(3, cx="12"), ("frames[3]", "`cx`", "'12'", "a number")),
    "a shape": (_frame(3, w=40, h=20), ("frames[3]", "views/4.png", "24 x 20", "40 x 20")),
    "a lens of one": (_frame(3, k1=0.1), ("frames[3]", "differ in size", "24 x 20", "23 x 19")),
    "a fisheye": (lambda whole: whole.update(camera_model="OPENCV_FISHEYE"), ("not a pinhole", "fisheye", "colmap")),
    "a model": (lambda whole: whole.update(camera_model="VR180_L"), ("not supported", "VR180_L")),
}


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail the test if a run starts in spite of bad input."""

    def fail(*arguments):
        raise AssertionError("the run started")

    monkeypatch.setattr(_run, "FieldLearner", fail)


def catch_refusal(options):
    with pytest.raises(InputError) as caught:
        fit_scene(options)
    assert not options.out.exists()
    return str(caught.value)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("what", TOLD)
def test_invalid_entries_are_refused_by_file_and_name(folder, fitting, what):
    how, words = TOLD[what]
    change(folder, how)
    said = catch_refusal(fitting(dataset=folder))
    for word in (str(folder / "transforms_train.json"), *words):
        assert word in said, said


@pytest.mark.usefixtures("nothing_runs")
def test_other_files_are_refused(folder, fitting, tmp_path):
    path = folder / "transforms_train.json"
    assert "does not exist" in catch_refusal(fitting(dataset=tmp_path / "none"))
    assert "is not a folder" in catch_refusal(fitting(dataset=path))
    (tmp_path / "empty").mkdir()
    said = catch_refusal(fitting(dataset=tmp_path / "empty"))
    assert "does not contain a dataset" in said and "transforms.json" in said
    path.write_text('{"frames": [\n{"file_path": "a"},,]}')
    said = catch_refusal(fitting(dataset=folder))
    assert "is not valid JSON" in said and str(path) in said and "2, column" in said
    path.write_text("[1, 2]")
    assert "a list" in catch_refusal(fitting(dataset=folder))
    path.write_bytes(b'{"frames": "\xff"}')
    assert "is not valid JSON" in catch_refusal(fitting(dataset=folder))


@pytest.mark.usefixtures("nothing_runs")
def test_broken_pictures_and_unequal_sizes_are_refused(folder, fitting):
    path = folder / "views/7.png"  # of the views held out
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    said = catch_refusal(fitting(dataset=folder))
    assert "transforms_test.json" in said and "frames[1]" in said and str(path) in said and "cannot be read" in said
    Image.new("RGB", (24, 21)).save(path)
    said = catch_refusal(fitting(dataset=folder))
    assert "differ in size" in said and "24 x 20" in said and "24 x 21" in said and "frames[1]" in said
    Image.new("F", (24, 20)).save(path, "TIFF")
    assert "floating point" in catch_refusal(fitting(dataset=folder))
    path.write_text("no picture")
    assert "not an image of a known format" in catch_refusal(fitting(dataset=folder))


@pytest.mark.usefixtures("nothing_runs")
def test_too_small_and_too_few_pictures_are_refused(folder, fitting):
    for number in range(15):
        with Image.open(folder / f"views/{number}.png") as image:
            image.resize((24, 8)).save(folder / f"views/{number}.png")
    assert "fewer than 11 pixels" in catch_refusal(fitting(dataset=folder))
    (folder / "transforms_test.json").unlink()
    change(folder, lambda whole: whole.update(frames=whole["frames"][:1]))
    assert "too few frames" in catch_refusal(fitting(dataset=folder))


@pytest.mark.usefixtures("nothing_runs")
def test_overwriting_an_input_picture_is_refused(folder, fitting):
    (folder / "views/7.png").rename(folder / "depth.png")
    change(folder, lambda whole: whole["frames"][1].update(file_path="./depth"), "transforms_test.json")
    with pytest.raises(InputError, match="the dataset's picture would be overwritten") as refused:
        fit_scene(fitting(dataset=folder, out=folder))
    assert str(folder / "depth.png") in str(refused.value)


@pytest.mark.usefixtures("nothing_runs")
def test_a_box_that_no_camera_sees_is_refused(folder, fitting):
    for name in ("transforms_train.json", "transforms_test.json"):
        change(
            folder,
            lambda whole: [frame["transform_matrix"][2].__setitem__(3, 50.0) for frame in whole["frames"]],
            name,
        )
    said = catch_refusal(fitting(dataset=folder))
    assert "no camera sees the box" in said and "-1.5 to 1.5" in said and "z 50 to 50" in said and "--bound" in said


# COLMAP ----------------------------------------------------------------------------------------


def test_a_reconstruction_of_colmap_is_a_dataset(folder, tmp_path):
    """The same pictures and cameras, once in each form; which are held out is by their order."""
    whole = read_dataset(folder, 64)
    cameras = [(1, "PINHOLE", 24, 20, (26.0, 26.0, 12.0, 10.0))]
    images = []
    for number, (name, pose) in enumerate(zip(whole.train.names, whole.train.poses, strict=True), 1):
        viewmat = convert_to_viewmat(pose)
        images.append((number, _quaternion(viewmat), tuple(viewmat[:3, 3].tolist()), 1, name, []))
    write_binary(folder / "sparse/0", cameras, images, [(1, (0.0, 0.5, 1.0), (9, 8, 7), ())])
    for path in folder.glob("*.json"):
        path.unlink()
    (folder / "images").mkdir()
    (folder / "views").rename(folder / "images/views")
    read = read_dataset(folder, 64)
    assert (len(read.train), len(read.test)) == (10, 2) and read.digest != whole.digest
    assert read.points.positions.tolist() == [[0.0, 0.5, 1.0]] and read.points.colors.tolist() == [[9, 8, 7]]
    places = [whole.train.names.index(name.removeprefix("images/")) for name in read.train.names]
    assert torch.equal(read.train.pictures, whole.train.pictures[places])
    torch.testing.assert_close(read.train.poses, whole.train.poses[places], rtol=0, atol=1e-9)
    torch.testing.assert_close(read.train.intrinsics, whole.train.intrinsics[places])


def _quaternion(viewmat):
    """Return w x y z of a rotation: the eigenvector of its greatest eigenvalue (Bar-Itzhack 2000)."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = viewmat[:3, :3].tolist()
    rows = [
        [xx + yy + zz, zy - yz, xz - zx, yx - xy],
        [zy - yz, xx - yy - zz, xy + yx, xz + zx],
        [xz - zx, xy + yx, yy - xx - zz, yz + zy],
        [yx - xy, xz + zx, yz + zy, zz - xx - yy],
    ]
    return tuple(np.linalg.eigh(np.array(rows))[1][:, -1].tolist())
