"""Captures: what Blender's and COLMAP's files tell, text and binary alike, and how broken ones are refused."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest
import torch
from PIL import Image

import tinsmith as ts
from support.colmap import write_binary, write_text
from tinsmith.render import load_blender, load_colmap
from tinsmith.render.captures import read_colmap, viewmat_of
from tinsmith.render.captures._capture import pose_of

WRITERS = {"text": write_text, "binary": write_binary}
HALF = math.sqrt(0.5)
CAMERAS = [
    (3, "PINHOLE", 64, 48, (50.0, 51.0, 31.5, 24.25)),
    (7, "SIMPLE_PINHOLE", 32, 20, (40.0, 16.0, 10.0)),
    (8, "SIMPLE_RADIAL", 32, 20, (41.0, 16.0, 10.0, 0.0)),
    (9, "OPENCV", 32, 20, (42.0, 43.0, 16.0, 10.0, 0.0, 0.0, 0.0, 0.0)),
]
IMAGES = [
    (5, (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 2.0), 3, "b view.png", [(1.5, 2.5, 11), (3.0, 4.0, -1)]),
    (2, (HALF, 0.0, HALF, 0.0), (0.5, -0.25, 1.0), 7, "a/one.png", []),
    (6, (HALF, 0.0, 0.0, -HALF), (0.0, 1.0, 0.0), 8, "c.png", [(0.0, 0.0, 4)]),
    (1, (0.5, 0.5, -0.5, 0.5), (3.0, 0.0, 0.0), 9, "d.png", []),
]
POINTS = [
    (11, (0.5, -1.25, 3.0), (255, 0, 17), (5, 0, 2, 1)),
    (4, (1e-3, 2.0, -7.5), (1, 2, 3), ()),
]


@pytest.fixture
def folder(tmp_path):
    sizes = {camera[0]: camera[2:4] for camera in CAMERAS}
    for image in IMAGES:
        path = tmp_path / "images" / image[4]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", sizes[image[3]]).save(path)
    return tmp_path


# COLMAP ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["sparse/0", "sparse", "."])
@pytest.mark.parametrize("form", WRITERS)
def test_a_reconstruction_is_read_as_it_was_written(folder, form, where):
    WRITERS[form](folder / where, CAMERAS, IMAGES, POINTS)
    capture = load_colmap(folder)
    assert [str(path.relative_to(folder / "images")) for path in capture.images] == [
        "a/one.png",
        "b view.png",
        "c.png",
        "d.png",
    ]
    assert len(capture) == 4 and capture.sizes.tolist() == [[32, 20], [64, 48], [32, 20], [32, 20]]
    assert capture.Ks[1].tolist() == [[50.0, 0, 31.5], [0, 51, 24.25], [0, 0, 1]]
    assert capture.Ks[0].tolist() == [[40.0, 0, 16], [0, 40, 10], [0, 0, 1]]
    assert capture.Ks[[2, 3], [0, 0], [0, 0]].tolist() == [41, 42] and capture.Ks[3, 1, 1] == 43
    assert capture.points.tolist() == [[0.5, -1.25, 3.0], [1e-3, 2.0, -7.5]]
    assert capture.colors.tolist() == [[255, 0, 17], [1, 2, 3]] and capture.colors.dtype == torch.uint8
    expected = torch.eye(4, dtype=torch.float64).repeat(4, 1, 1)
    expected[0, :3] = torch.tensor([[0.0, 0, 1, 0.5], [0, 1, 0, -0.25], [-1, 0, 0, 1]])  # y: a quarter turn
    expected[1, 2, 3] = 2
    expected[2, :3] = torch.tensor([[0.0, 1, 0, 0], [-1, 0, 0, 1], [0, 0, 1, 0]])  # z: a quarter turn back
    expected[3, :3] = torch.tensor([[0.0, -1, 0, 3], [0, 0, -1, 0], [1, 0, 0, 0]])  # axes change places
    torch.testing.assert_close(capture.viewmats, expected, rtol=0, atol=1e-12)


def test_text_and_binary_are_the_same_and_binary_goes_first(folder):
    write_text(folder / "sparse" / "0", CAMERAS, IMAGES, POINTS)
    first = load_colmap(folder)
    write_binary(folder / "sparse" / "0", CAMERAS, IMAGES[:2], POINTS)
    assert len(load_colmap(folder)) == 2
    write_binary(folder / "sparse" / "0", CAMERAS, IMAGES, POINTS)
    second = load_colmap(folder)
    for name in ("viewmats", "Ks", "sizes", "points", "colors"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert first.images == second.images


def test_pictures_in_another_folder_and_no_points(folder):
    write_binary(folder / "sparse" / "0", CAMERAS, IMAGES, POINTS)
    (folder / "sparse/0/points3D.bin").unlink()
    (folder / "images").rename(folder / "small")
    capture = load_colmap(str(folder), images="small")
    assert len(capture) == 4 and capture.points.shape == capture.colors.shape == (0, 3)


def test_poses_go_there_and_back():
    viewmats = torch.eye(4, dtype=torch.float64).repeat(3, 1, 1)
    viewmats[:, :3, :3] = torch.linalg.qr(torch.randn(3, 3, 3, dtype=torch.float64))[0]
    viewmats[:, :3, 3] = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(viewmat_of(pose_of(viewmats)), viewmats)
    flip = torch.diag(torch.tensor([1.0, -1, -1, 1]).double())
    torch.testing.assert_close(pose_of(viewmats), torch.linalg.inv(viewmats) @ flip)


def _camera(place, *row):
    return lambda c, i, p: c.__setitem__(place, row)


def _image(**changes):
    names = ("number", "quaternion", "translation", "camera", "name", "points")

    def change(cameras, images, points):
        row = dict(zip(names, images[0], strict=True)) | changes
        images[0] = tuple(row.values())

    return change


WRONG = {
    "a lens": (
        _camera(0, 3, "SIMPLE_RADIAL", 64, 48, (50.0, 32.0, 24.0, 0.1)),
        ("camera 3", "distorts", "0.1", "Undist"),
    ),
    "a lens of OpenCV": (
        _camera(0, 3, "OPENCV", 64, 48, (50.0, 50.0, 32.0, 24.0, 0.0, 0.2, 0.0, 0.0)),
        ("camera 3", "OPENCV", "0, 0.2, 0, 0"),
    ),
    "a fisheye": (
        _camera(0, 3, "OPENCV_FISHEYE", 64, 48, (50.0, 50.0, 32.0, 24.0, 0.0, 0.0, 0.0, 0.0)),
        ("camera 3", "not a pinhole", "OPENCV_FISHEYE", "image_undistorter"),
    ),
    "a focal length": (_camera(0, 3, "PINHOLE", 64, 48, (50.0, -1.0, 32.0, 24.0)), ("camera 3", "50, -1")),
    "no number": (_camera(0, 3, "PINHOLE", 64, 48, (50.0, 50.0, math.nan, 24.0)), ("camera 3", "nan, 24")),
    "another size": (_camera(0, 3, "PINHOLE", 65, 48, (50.0, 50.0, 32.0, 24.0)), ("image 5", "the image has 64")),
    "a camera twice": (_camera(0, 7, "PINHOLE", 64, 48, (50.0, 50.0, 32.0, 24.0)), ("twice", "cameras", "7")),
    "no camera": (_image(camera=1), ("image 5, b view.png", "a missing camera", "3, 7, 8, 9")),
    "an image twice": (_image(number=2), ("twice", "images", "2")),
    "no picture": (_image(name="none.png"), ("image 5, none.png", "missing", "none.png")),
    "no rotation": (_image(quaternion=(0.0, 0.0, 0.0, 0.0)), ("image 5", "no pose", "of length 0, expected 1")),
    "no place": (_image(translation=(0.0, math.inf, 0.0)), ("image 5", "no pose", "inf")),
    "no point": (lambda c, i, p: p.__setitem__(1, (4, (0.0, math.nan, 0.0), (1, 2, 3), ())), ("point 4", "not finite")),
    "no images": (lambda c, i, p: i.clear(), ("has no images", "images")),
}


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("what", WRONG)
def test_what_is_told_wrong(folder, what, form):
    change, words = WRONG[what]
    cameras, images, points = list(CAMERAS), list(IMAGES), list(POINTS)
    change(cameras, images, points)
    WRITERS[form](folder / "sparse/0", cameras, images, points)
    with pytest.raises(ts.InputError) as caught:
        load_colmap(folder)
    for word in words:
        assert word in str(caught.value), str(caught.value)


LINES = {
    "cameras.txt": ["1 PINHOLE 64 48 50", "1 PINHOLE 64 wide 50 50 32 24", "1", "x PINHOLE 64 48 50 50 32 24"],
    "images.txt": ["1 1 0 0 0 0 0 2 1", "1 1 0 0 0 0 0 two 1 view.png", "word"],
    "points3D.txt": ["1 0.5 0 1 256 0 0 0.1", "1 0.5 0 1 2", "1 0.5 0 1 2.5 0 0 0.1"],
}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in LINES.items() for line in lines])
def test_broken_lines_are_refused_by_number(folder, name, line):
    write_text(folder, CAMERAS, IMAGES, POINTS)
    path = folder / name
    kept = path.read_text()
    path.write_text(f"{kept}{line}\n")
    with pytest.raises(ts.InputError, match="a line of the reconstruction is broken") as caught:
        load_colmap(folder)
    said = str(caught.value)
    assert f"line {kept.count(chr(10)) + 1}" in said and str(path) in said and line in said and "_ID" in said


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_binary_files_that_are_cut_or_too_long(folder, name):
    write_binary(folder, CAMERAS, IMAGES, POINTS)
    path = folder / name
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ts.InputError, match="a binary file of the reconstruction is broken") as caught:
            read_colmap(folder)
        assert str(path) in str(caught.value) and f"of {length}" in str(caught.value)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ts.InputError, match="there is more than its"):
        read_colmap(folder)
    path.write_bytes(struct.pack("<Q", 2**60) + whole[8:])
    with pytest.raises(ts.InputError, match="it cannot hold 1152921504606846976 entries"):
        read_colmap(folder)


def test_other_binary_nonsense(folder):
    write_binary(folder, CAMERAS, IMAGES, POINTS)
    whole = (folder / "cameras.bin").read_bytes()
    (folder / "cameras.bin").write_bytes(whole[:12] + struct.pack("<i", 99) + whole[16:])
    with pytest.raises(ts.InputError, match="no camera model with number 99"):
        load_colmap(folder)
    (folder / "cameras.bin").write_bytes(whole)
    whole = (folder / "images.bin").read_bytes()
    (folder / "images.bin").write_bytes(whole.replace(b"b view", b"\xff\xfe view"[:6]))
    with pytest.raises(ts.InputError, match="a name is not valid text"):
        load_colmap(folder)


def test_files_that_are_not_there(folder):
    with pytest.raises(ts.InputError, match="holds no reconstruction of COLMAP's(.|\n)*sparse/0"):
        load_colmap(folder)
    write_text(folder, CAMERAS, IMAGES, POINTS)
    (folder / "images.txt").unlink()
    with pytest.raises(ts.InputError, match="a file of the reconstruction cannot be read(.|\n)*images.txt"):
        load_colmap(folder)
    (folder / "images.txt").write_bytes(b"\xff\xff")
    with pytest.raises(ts.InputError, match="a file of the reconstruction cannot be read(.|\n)*utf-8"):
        load_colmap(folder)


def test_a_picture_that_is_none(folder):
    write_text(folder, CAMERAS, IMAGES, POINTS)
    (folder / "images/c.png").write_text("no picture")
    with pytest.raises(ts.InputError, match="a picture of the dataset cannot be read(.|\n)*image 6, c.png"):
        load_colmap(folder)


# Blender ---------------------------------------------------------------------------------------


def test_transforms_are_read(tmp_path):
    draw = np.random.default_rng(0)
    turns = [np.linalg.qr(draw.normal(size=(3, 3)))[0] for _ in range(3)]
    poses = []
    for number, turn in enumerate(turns):
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = turn * np.sign(np.linalg.det(turn)), draw.normal(size=3)
        poses.append(pose)
        Image.new("RGB", (64, 48)).save(tmp_path / f"r_{number}.png")
    frames = [{"file_path": f"./r_{n}", "transform_matrix": pose.tolist()} for n, pose in enumerate(poses)]
    path = tmp_path / "transforms_train.json"
    path.write_text(json.dumps({"camera_angle_x": 0.8, "frames": frames}))
    capture = load_blender(path)
    assert capture.images == tuple(tmp_path / f"r_{n}.png" for n in range(3))
    assert capture.sizes.tolist() == [[64, 48]] * 3 and len(capture.points) == 0
    focal = 32 / math.tan(0.4)
    torch.testing.assert_close(capture.Ks[2], torch.tensor([[focal, 0, 32], [0, focal, 24], [0, 0, 1]]).double())
    flip = np.diag([1.0, -1, -1, 1])
    for viewmat, pose in zip(capture.viewmats.numpy(), poses, strict=True):
        np.testing.assert_allclose(viewmat, flip @ np.linalg.inv(pose), atol=1e-12)
    with pytest.raises(ts.InputError, match="cannot be read(.|\n)*none.json"):
        load_blender(tmp_path / "none.json")


def test_a_picture_on_its_side_counts_upright(tmp_path):
    picture = Image.new("RGB", (64, 48))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "view.jpg", exif=exif)
    frames = [{"file_path": "view", "transform_matrix": np.eye(4).tolist()}]
    (tmp_path / "transforms.json").write_text(json.dumps({"fl_x": 9.0, "w": 48, "h": 64, "frames": frames}))
    assert load_blender(tmp_path / "transforms.json").sizes.tolist() == [[48, 64]]
