"""Captures: what Blender's and COLMAP's files tell, text and binary alike, and how broken ones are refused."""

from __future__ import annotations

import json
import math
import re
import struct

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

import tinsmith as ts
from support.colmap import write_binary, write_text
from tinsmith import _extras
from tinsmith.render import load_blender, load_colmap
from tinsmith.render.captures import convert_to_viewmat, read_colmap
from tinsmith.render.captures._capture import convert_to_pose

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


def test_the_size_of_a_scene(folder):
    write_text(folder, CAMERAS, IMAGES, POINTS)
    capture = load_colmap(folder)
    centers = torch.linalg.inv(capture.viewmats)[:, :3, 3]
    expected = max(math.dist(one.tolist(), (centers.sum(0) / 4).tolist()) for one in centers)
    assert capture.scene_scale == pytest.approx(expected)


def test_poses_go_there_and_back():
    viewmats = torch.eye(4, dtype=torch.float64).repeat(3, 1, 1)
    viewmats[:, :3, :3] = torch.linalg.qr(torch.randn(3, 3, 3, dtype=torch.float64))[0]
    viewmats[:, :3, 3] = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(convert_to_viewmat(convert_to_pose(viewmats)), viewmats)
    flip = torch.diag(torch.tensor([1.0, -1, -1, 1]).double())
    torch.testing.assert_close(convert_to_pose(viewmats), torch.linalg.inv(viewmats) @ flip)


def _camera(place, *row):
    return lambda c, i, p: c.__setitem__(place, row)


def _image(**changes):
    names = ("number", "quaternion", "translation", "camera", "name", "points")

    def change(cameras, images, points):
        row = dict(zip(names, images[0], strict=True)) | changes
        images[0] = tuple(row.values())

    return change


WRONG = {
    "a model": (
        _camera(0, 3, "FOV", 64, 48, (50.0, 50.0, 32.0, 24.0, 0.5)),
        ("camera 3", "model is not supported", "FOV", "SIMPLE_RADIAL, RADIAL", "image_undistorter"),
    ),
    "a lens without a number": (
        _camera(0, 3, "SIMPLE_RADIAL", 64, 48, (50.0, 32.0, 24.0, math.inf)),
        ("camera 3", "parameters are not valid", "inf"),
    ),
    "a focal length": (_camera(0, 3, "PINHOLE", 64, 48, (50.0, -1.0, 32.0, 24.0)), ("camera 3", "50, -1")),
    "no number": (_camera(0, 3, "PINHOLE", 64, 48, (50.0, 50.0, math.nan, 24.0)), ("camera 3", "nan, 24")),
    "another size": (_camera(0, 3, "PINHOLE", 48, 64, (50.0, 50.0, 32.0, 24.0)), ("image 5", "64 x 48", "48 x 64")),
    "a camera twice": (_camera(0, 7, "PINHOLE", 64, 48, (50.0, 50.0, 32.0, 24.0)), ("the same number", "cameras", "7")),
    "no camera": (_image(camera=1), ("image 5, b view.png", "a missing camera", "3, 7, 8, 9")),
    "an image twice": (_image(number=2), ("the same number", "images", "2")),
    "no rotation": (_image(quaternion=(0.0, 0.0, 0.0, 0.0)), ("image 5", "invalid pose", "of length 0, expected 1")),
    "no place": (_image(translation=(0.0, math.inf, 0.0)), ("image 5", "invalid pose", "inf")),
    "no point": (lambda c, i, p: p.__setitem__(1, (4, (0.0, math.nan, 0.0), (1, 2, 3), ())), ("point 4", "not finite")),
    "no images": (lambda c, i, p: i.clear(), ("has no images", "images")),
}


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("what", WRONG)
def test_invalid_entries_are_refused(folder, what, form):
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
    "points3D.txt": ["1 0.5 0 1 256 0 0 0.1", "1 0.5 0 1 2", "1 0.5 0 1 2.5 0 0 0.1", "1 0.5 0 1 2 0 0 0.1 5"],
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
    with pytest.raises(ts.InputError, match="more bytes follow its"):
        read_colmap(folder)
    path.write_bytes(struct.pack("<Q", 2**60) + whole[8:])
    with pytest.raises(ts.InputError, match="it is too short for 1152921504606846976 entries"):
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
    with pytest.raises(ts.InputError, match="a name is not valid UTF-8"):
        load_colmap(folder)


def test_files_that_are_not_there(folder):
    with pytest.raises(ts.InputError, match="does not contain a COLMAP reconstruction(.|\n)*sparse/0"):
        load_colmap(folder)
    write_text(folder, CAMERAS, IMAGES, POINTS)
    (folder / "images.txt").unlink()
    with pytest.raises(ts.InputError, match="a file of the reconstruction cannot be read(.|\n)*images.txt"):
        load_colmap(folder)
    (folder / "images.txt").write_bytes(b"\xff\xff")
    with pytest.raises(ts.InputError, match="a file of the reconstruction cannot be read(.|\n)*utf-8"):
        load_colmap(folder)


def test_an_invalid_picture_is_refused(folder):
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


# Lenses ----------------------------------------------------------------------------------------


def _pinhole(x, y, k1=0.0, k2=0.0, p1=0.0, p2=0.0, k3=0.0, k4=0.0, k5=0.0, k6=0.0):
    """Project by FULL_OPENCV, as COLMAP's documentation defines it."""
    r2 = x * x + y * y
    radial = (1 + k1 * r2 + k2 * r2**2 + k3 * r2**3) / (1 + k4 * r2 + k5 * r2**2 + k6 * r2**3)
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + 2 * p2 * x * y + p1 * (r2 + 2 * y * y),
    )


def _fisheye(x, y, k1=0.0, k2=0.0, k3=0.0, k4=0.0, p1=0.0, p2=0.0, sx1=0.0, sy1=0.0):
    """Project by THIN_PRISM_FISHEYE of COLMAP's documentation, from x and y whose length is the angle."""
    r2 = x * x + y * y
    radial = k1 * r2 + k2 * r2**2 + k3 * r2**3 + k4 * r2**4
    return (
        x + x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + sx1 * r2,
        y + y * radial + 2 * p2 * x * y + p1 * (r2 + 2 * y * y) + sy1 * r2,
    )


LENSES = {
    "SIMPLE_RADIAL": ("pinhole", {"k1": 0.06}),
    "RADIAL": ("pinhole", {"k1": -0.12, "k2": 0.03}),
    "OPENCV": ("pinhole", {"k1": 0.05, "k2": -0.02, "p1": 0.004, "p2": -0.006}),
    "FULL_OPENCV": (
        "pinhole",
        {"k1": 0.1, "k2": 0.02, "p1": 0.002, "p2": 0.001, "k3": 0.01, "k4": 0.05, "k5": 0.02, "k6": 0.01},
    ),
    "SIMPLE_RADIAL_FISHEYE": ("fisheye", {"k1": 0.05}),
    "RADIAL_FISHEYE": ("fisheye", {"k1": 0.06, "k2": -0.02}),
    "OPENCV_FISHEYE": ("fisheye", {"k1": -0.05, "k2": 0.02, "k3": -0.01, "k4": 0.005}),
    "THIN_PRISM_FISHEYE": (
        "fisheye",
        {"k1": 0.05, "k2": 0.01, "p1": 0.004, "p2": -0.003, "k3": 0.01, "k4": 0.0, "sx1": 0.003, "sy1": -0.002},
    ),
}
ONE_FOCAL = ("SIMPLE_RADIAL", "RADIAL", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE")
SIZE, FOCAL, CENTER = (120, 90), (80.0, 84.0), (61.5, 44.25)


def _of_direction(x, y):
    """Compute a smooth picture of the scene by direction."""
    return np.stack(
        [127 + 100 * np.sin(5 * x + y), 127 + 100 * np.cos(4 * y - x), 127 + 90 * np.sin(3 * x * y + 1)], -1
    )


def _take_picture(distort, coefficients, focal, center, size):
    """Take a picture with a distorting camera: each pixel's ray by fixed-point iteration."""
    u, v = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5)
    x0, y0 = (u - center[0]) / focal[0], (v - center[1]) / focal[1]
    x, y = x0.copy(), y0.copy()
    for _ in range(200):
        bent_x, bent_y = distort(x, y, **coefficients)
        x, y = x + x0 - bent_x, y + y0 - bent_y
    assert max(np.abs(bent_x - x0).max(), np.abs(bent_y - y0).max()) < 1e-9
    return Image.fromarray(np.round(_of_direction(x, y)).astype(np.uint8))


def _assert_straight(capture, index=0):
    """Assert that a picture is what an ideal camera with these intrinsics would take, but for rounding."""
    image, K = capture.load_image(index).numpy().astype(float), capture.Ks[index].numpy()
    height, width = image.shape[:2]
    assert capture.sizes[index].tolist() == [width, height]
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    expected = _of_direction((u - K[0, 2]) / K[0, 0], (v - K[1, 2]) / K[1, 1])
    mask = capture.load_mask(index)
    is_seen = np.ones((height, width), bool) if mask is None else mask.numpy()
    assert (image[~is_seen] == 0).all() and is_seen.mean() > 0.9
    assert np.abs(image - expected)[is_seen].max() < 2.5
    return is_seen


def _lens_folder(tmp_path, model, scale=1):
    kind, coefficients = LENSES[model]
    focal = (FOCAL[0], FOCAL[0]) if model in ONE_FOCAL else FOCAL
    distort = _pinhole if kind == "pinhole" else _fisheye
    (tmp_path / "images").mkdir()
    _take_picture(distort, coefficients, focal, CENTER, SIZE).save(tmp_path / "images/a.png")
    numbers = [*focal[: 1 if model in ONE_FOCAL else 2], *CENTER]
    parameters = tuple([scale * number for number in numbers] + [*coefficients.values()])
    camera = (3, model, scale * SIZE[0], scale * SIZE[1], parameters)
    write_text(tmp_path, [camera], [(5, (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 3, "a.png", [])])
    return kind, coefficients, focal


@pytest.mark.parametrize("scale", [1, 4], ids=["whole", "small"])
@pytest.mark.parametrize("model", LENSES)
def test_lenses_are_undistorted(tmp_path, model, scale):
    kind, coefficients, focal = _lens_folder(tmp_path, model, scale)
    capture = load_colmap(tmp_path)
    is_seen = _assert_straight(capture)
    assert capture.camera_models == (kind,)
    # The cameras are those of gsplat 1.5.3's parser.
    matrix = np.array([[focal[0], 0, CENTER[0]], [0, focal[1], CENTER[1]], [0, 0, 1]])
    if kind == "pinhole":
        names = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
        ordered = np.array([coefficients.get(name, 0.0) for name in names])
        view, crop = cv2.getOptimalNewCameraMatrix(matrix, ordered, SIZE, 0)
        assert crop[:2] == (0, 0) and is_seen.all()
    else:
        u, v = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
        bent_x, bent_y = _fisheye((u - CENTER[0]) / focal[0], (v - CENTER[1]) / focal[1], **coefficients)
        map_x, map_y = bent_x * focal[0] + CENTER[0], bent_y * focal[1] + CENTER[1]
        rows, columns = np.nonzero((map_x > 0) & (map_y > 0) & (map_x < SIZE[0] - 1) & (map_y < SIZE[1] - 1))
        view = matrix - np.array([[0, 0, columns.min()], [0, 0, rows.min()], [0, 0, 0]])
        crop = (0, 0, np.ptp(columns) + 1, np.ptp(rows) + 1)
    np.testing.assert_allclose(capture.Ks[0].numpy(), view, rtol=1e-9)
    assert capture.sizes[0].tolist() == [crop[2], crop[3]]


def test_a_picture_with_an_alpha_channel_is_undistorted(tmp_path):
    _lens_folder(tmp_path, "SIMPLE_RADIAL")
    with Image.open(tmp_path / "images/a.png") as image:
        image.convert("RGBA").save(tmp_path / "images/a.png")
    image = load_colmap(tmp_path).load_image(0)
    assert image.shape == (89, 119, 4) and (image[..., 3] == 255).all()


def test_a_lens_that_does_not_distort_needs_no_package(tmp_path, monkeypatch):
    monkeypatch.setattr(_extras, "_can_be_imported", lambda name: name != "cv2")
    (tmp_path / "images").mkdir()
    Image.new("RGB", SIZE, "red").save(tmp_path / "images/a.png")
    image = (5, (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 3, "a.png", [])
    write_text(tmp_path, [(3, "OPENCV_FISHEYE", *SIZE, (*FOCAL, *CENTER, 0.0, 0.0, 0.0, 0.0))], [image])
    capture = load_colmap(tmp_path)
    assert capture.camera_models == ("fisheye",) and capture.load_mask(0) is None
    assert capture.load_image(0).shape == (90, 120, 3) and capture.sizes.tolist() == [[120, 90]]
    write_text(tmp_path, [(3, "SIMPLE_RADIAL", *SIZE, (80.0, *CENTER, 0.02))], [image])
    with pytest.raises(ts.ConfigError, match="needs opencv-python-headless") as caught:
        load_colmap(tmp_path)
    assert _extras.install_command("captures") in str(caught.value)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("OPENCV", {"camera_model": "OPENCV"}),
        ("OPENCV", {}),
        ("OPENCV_FISHEYE", {"camera_model": "OPENCV_FISHEYE"}),
        ("OPENCV_FISHEYE", {"is_fisheye": True}),
        ("FULL_OPENCV", {"camera_model": "FULL_OPENCV"}),
    ],
)
@pytest.mark.parametrize("place", ["file", "frame"])
def test_lenses_of_transforms_are_undistorted(tmp_path, model, fields, place):
    kind, coefficients, focal = _lens_folder(tmp_path, model)
    numbers = {"fl_x": 2 * focal[0], "fl_y": 2 * focal[1], "cx": 2 * CENTER[0], "cy": 2 * CENTER[1]}
    numbers |= {"w": 2 * SIZE[0], "h": 2 * SIZE[1]} | coefficients | fields
    frame = {"file_path": "images/a.png", "transform_matrix": np.eye(4).tolist()}
    whole = {**numbers, "frames": [frame]} if place == "file" else {"frames": [frame | numbers]}
    (tmp_path / "transforms.json").write_text(json.dumps(whole))
    capture = load_blender(tmp_path / "transforms.json")
    _assert_straight(capture)
    assert capture.camera_models == (kind,)
    torch.testing.assert_close(capture.Ks, load_colmap(tmp_path).Ks, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"camera_model": "EQUIRECTANGULAR"}, ("model is not supported", "EQUIRECTANGULAR", "OPENCV_FISHEYE")),
        ({"camera_model": "OPENCV", "k4": 0.1}, ("has no such distortion", "k4 +0.1", "FULL_OPENCV")),
        ({"k1": "much"}, ("`k1` of the dataset has an invalid value",)),
        ({"k1": -4.0, "k2": -9.0, "camera_model": "OPENCV_FISHEYE"}, ()),
    ],
)
def test_lenses_that_are_refused(tmp_path, fields, words):
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    frame = {"file_path": "a", "transform_matrix": np.eye(4).tolist()}
    (tmp_path / "transforms.json").write_text(json.dumps({"fl_x": 40.0, **fields, "frames": [frame]}))
    if not words:
        assert load_blender(tmp_path / "transforms.json").camera_models == ("fisheye",)
        return
    with pytest.raises(ts.InputError) as caught:
        load_blender(tmp_path / "transforms.json")
    for word in ("transforms.json", *words):
        assert re.search(word, str(caught.value)), str(caught.value)


# Smaller pictures, missing ones, points --------------------------------------------------------


def _save(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)


IDENTITY = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


@pytest.mark.parametrize("form", WRITERS)
def test_intrinsics_are_scaled_to_the_pictures(tmp_path, form):
    """Two cameras, the second with sides that four does not divide, and pictures of the size that they have."""
    cameras = [
        (1, "PINHOLE", 640, 480, (500.0, 510.0, 320.0, 240.0)),
        (2, "SIMPLE_PINHOLE", 101, 51, (90.0, 50.5, 25.5)),
    ]
    WRITERS[form](tmp_path / "sparse/0", cameras, [(1, *IDENTITY, 1, "a.png", []), (2, *IDENTITY, 2, "b.png", [])])
    for folder, sizes in (("images", [(640, 480), (101, 51)]), ("images_4", [(160, 120), (25, 13)])):
        for name, size in zip(("a.png", "b.png"), sizes, strict=True):
            _save(tmp_path / folder / name, size)
    capture = load_colmap(tmp_path, images="images_4")
    assert capture.Ks[0].tolist() == [[125.0, 0, 80], [0, 127.5, 60], [0, 0, 1]]
    expected = torch.tensor([[90 * 25 / 101, 0, 12.5], [0, 90 * 13 / 51, 6.5], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(capture.Ks[1], expected)
    assert capture.sizes.tolist() == [[160, 120], [25, 13]]
    assert load_colmap(tmp_path).Ks[0, 0, 0] == 500
    _save(tmp_path / "images_4/a.png", (120, 160))
    with pytest.raises(ts.InputError, match="the image's size is not what the dataset says") as caught:
        load_colmap(tmp_path, images="images_4")
    for word in ("image 1, a.png", "120 x 160", "640 x 480", "aspect ratio is the same"):
        assert word in str(caught.value)


def test_smaller_pictures_may_have_other_suffixes_or_names(tmp_path):
    names = ["left/IMG 1.JPG", "left/IMG 2.JPG", "right.JPG"]
    images = [(number, *IDENTITY, 1, name, []) for number, name in enumerate(names)]
    write_binary(tmp_path / "sparse", [(1, "PINHOLE", 64, 48, (50.0, 50.0, 32.0, 24.0))], images)
    for name in names:
        _save(tmp_path / "images" / name, (64, 48))
        _save(tmp_path / "images_2" / name.replace(".JPG", ".png"), (32, 24))
        _save(tmp_path / "images_4" / name.replace("IMG ", "frame_0").lower(), (16, 12))
    (tmp_path / "images_4/notes.txt").write_text("no picture")
    assert [str(path.relative_to(tmp_path)) for path in load_colmap(tmp_path, "images_2").images] == [
        "images_2/left/IMG 1.png",
        "images_2/left/IMG 2.png",
        "images_2/right.png",
    ]
    capture = load_colmap(tmp_path, "images_4")
    assert [path.name for path in capture.images] == ["frame_01.jpg", "frame_02.jpg", "right.jpg"]
    assert capture.sizes.tolist() == [[16, 12]] * 3 and capture.Ks[0, 0, 0] == 12.5
    (tmp_path / "images_4/right.jpg").unlink()
    with pytest.raises(ts.InputError, match="the pictures of the reconstruction are missing(.|\n)*IMG 1.JPG"):
        load_colmap(tmp_path, "images_4")


@pytest.mark.parametrize("form", WRITERS)
def test_missing_pictures_are_left_out_with_a_warning(folder, form):
    WRITERS[form](folder, CAMERAS, IMAGES, POINTS)
    whole = load_colmap(folder)
    (folder / "images/b view.png").unlink()
    with pytest.warns(UserWarning, match="pictures of the dataset are missing") as caught:
        capture = load_colmap(folder)
    said = str(caught[0].message)
    assert "1 of 4" in said and "b view.png" in said and str(folder) in said and caught[0].filename == __file__
    assert [path.name for path in capture.images] == ["one.png", "c.png", "d.png"]
    assert torch.equal(capture.Ks, whole.Ks[[0, 2, 3]]) and torch.equal(capture.viewmats, whole.viewmats[[0, 2, 3]])
    for ours, theirs in zip(capture.observations, (whole.observations[i] for i in (0, 2, 3)), strict=True):
        assert torch.equal(ours.points, theirs.points)
    for path in (folder / "images").rglob("*.png"):
        path.unlink()
    with pytest.raises(ts.InputError, match="the pictures of the reconstruction are missing(.|\n)*one.png"):
        load_colmap(folder)


def test_missing_pictures_of_transforms_are_left_out_with_a_warning(tmp_path):
    frames = [{"file_path": f"r_{number}", "transform_matrix": np.eye(4).tolist()} for number in range(6)]
    (tmp_path / "transforms.json").write_text(json.dumps({"fl_x": 9.0, "frames": frames}))
    with pytest.raises(ts.InputError, match="the pictures of the dataset are missing(.|\n)*r_0(.|\n)*png"):
        load_blender(tmp_path / "transforms.json")
    _save(tmp_path / "r_4.png", (8, 8))
    with pytest.warns(UserWarning, match="5 of 6 are missing(.|\n)*r_0(.|\n)*and 2 more"):
        capture = load_blender(tmp_path / "transforms.json")
    assert capture.images == (tmp_path / "r_4.png",)


@pytest.mark.parametrize("model", ["PINHOLE", "OPENCV", "OPENCV_FISHEYE"])
@pytest.mark.parametrize("form", WRITERS)
def test_observations(tmp_path, form, model):
    """Points of which some are behind the camera or beside its picture, seen through any lens."""
    draw = np.random.default_rng(0)
    coefficients = LENSES[model][1] if model in LENSES else {}
    turn = (0.5, -0.5, 0.5, 0.5)
    images = [
        (7, turn, (0.1, 0.2, 3.0), 1, "a.png", []),
        (2, *IDENTITY, 1, "b.png", []),
        (4, *IDENTITY, 1, "c.png", []),
    ]
    camera = (1, model, 120, 90, (*FOCAL, *CENTER, *coefficients.values()))
    tracks = [[number for number in (7, 2) if draw.random() < 0.7] for _ in range(60)]
    points = []
    for number, track in enumerate(tracks):
        position = tuple((draw.normal(size=3) * 2).tolist())
        # An image twice, and one that is not listed.
        twice = [entry for image in [*track, *track[:1], 99] for entry in (image, 0)]
        points.append((100 - number, position, (1, 2, 3), tuple(twice)))
    for image in images:
        _save(tmp_path / "images" / image[4], (120, 90))
    WRITERS[form](tmp_path, [camera], images, points)
    capture = load_colmap(tmp_path)
    assert len(capture.observations) == 3 and not len(capture.observations[2].points)
    for place, image in ((0, 7), (1, 2)):
        seen = capture.observations[place]
        expected = []
        for row in range(60):
            before = capture.viewmats[place].numpy() @ np.array([*points[row][1], 1.0])
            x, y, z = before[:3]
            stretch = 1 / z
            if model == "OPENCV_FISHEYE":
                stretch = math.acos(z / math.sqrt(x * x + y * y + z * z)) / math.hypot(x, y)
            pixel = capture.Ks[place].numpy() @ np.array([x * stretch, y * stretch, 1.0])
            width, height = capture.sizes[place].tolist()
            if image in tracks[row] and z > 0 and 0 <= pixel[0] < width and 0 <= pixel[1] < height:
                expected.append((row, *pixel[:2], z))
        assert seen.points.tolist() == [one[0] for one in expected] and 0 < len(expected) < len(tracks)
        np.testing.assert_allclose(seen.pixels.numpy(), [one[1:3] for one in expected], rtol=1e-9)
        np.testing.assert_allclose(seen.depths.numpy(), [one[3] for one in expected], rtol=1e-9)


PLY = """ply
format ascii 1.0
element vertex 2
property float x
property double y
property float z
property uint8 red
property uint8 green
property uint8 blue
end_header
1.5 -2 0.25 255 0 7
0 1e-3 4 1 2 3
"""


def test_points_of_other_files(folder):
    """Each file as .bin or .txt, and points as PLY, which has no tracks."""
    write_text(folder, CAMERAS, IMAGES, POINTS)
    whole = load_colmap(folder)
    assert whole.observations[1].points.tolist() == [0] and len(whole.observations) == 4
    write_binary(folder / "binary", CAMERAS, IMAGES, POINTS)
    (folder / "images.txt").unlink()
    (folder / "binary/images.bin").rename(folder / "images.bin")
    mixed = load_colmap(folder)
    assert torch.equal(mixed.viewmats, whole.viewmats) and torch.equal(mixed.points, whole.points)
    (folder / "points3D.txt").unlink()
    (folder / "points3D.ply").write_text(PLY)
    capture = load_colmap(folder)
    assert capture.points.tolist() == [[1.5, -2, 0.25], [0, 1e-3, 4]] and capture.observations == ()
    assert capture.colors.tolist() == [[255, 0, 7], [1, 2, 3]]
    (folder / "points3D.ply").write_text(PLY.replace("double y", "double height"))
    with pytest.raises(ts.InputError, match="a file of points cannot be read(.|\n)*there is no property y"):
        load_colmap(folder)


def test_points_of_transforms(tmp_path):
    _save(tmp_path / "a.png", (8, 8))
    frame = {"file_path": "a", "transform_matrix": np.eye(4).tolist()}
    (tmp_path / "transforms.json").write_text(
        json.dumps({"fl_x": 9.0, "ply_file_path": "sparse_pc.ply", "frames": [frame]})
    )
    with pytest.warns(UserWarning, match="sparse_pc.ply as its file of points, but there is no such file"):
        assert not len(load_blender(tmp_path / "transforms.json").points)
    (tmp_path / "sparse_pc.ply").write_text(PLY)
    capture = load_blender(tmp_path / "transforms.json")
    assert capture.points.tolist() == [[1.5, -2, 0.25], [0, 1e-3, 4]] and capture.colors[0].tolist() == [255, 0, 7]


def test_pictures_are_read_upright(tmp_path):
    """A picture on its side, of a camera that COLMAP saw upright or as it was stored."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (6, 9, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    picture = Image.fromarray(pixels)
    exif = picture.getexif()
    exif[0x0112] = 6
    (tmp_path / "images").mkdir()
    picture.save(tmp_path / "images/a.jpg", exif=exif, quality=100, subsampling=0)
    for size, expected in (((72, 48), pixels), ((48, 72), np.rot90(pixels, -1))):
        camera = (1, "PINHOLE", *size, (50.0, 50.0, 30.0, 25.0))
        write_text(tmp_path, [camera], [(1, *IDENTITY, 1, "a.jpg", [])])
        capture = load_colmap(tmp_path)
        assert capture.sizes.tolist() == [list(size)]
        image = capture.load_image(0).numpy().astype(int)
        assert image.shape == expected.shape and np.abs(image - expected).mean() < 8


def test_a_picture_that_changed_after_loading(tmp_path):
    _lens_folder(tmp_path, "SIMPLE_RADIAL")
    capture = load_colmap(tmp_path)
    _save(tmp_path / "images/a.png", (60, 45))
    with pytest.raises(ts.InputError, match="another size than before(.|\n)*60 x 45(.|\n)*120 x 90"):
        capture.load_image(0)
    (tmp_path / "images/a.png").unlink()
    with pytest.raises(ts.InputError, match="a picture of the capture cannot be read(.|\n)*a.png"):
        capture.load_image(0)
