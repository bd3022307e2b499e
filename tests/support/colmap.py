"""COLMAP's files, written from their documentation alone: what readers are tested with."""

from __future__ import annotations

import struct

MODELS = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV")
NUMBERS = {name: number for number, name in enumerate(MODELS)}


def write_text(folder, cameras, images, points=()):
    """Write cameras (number, model, width, height, parameters), images (number, quaternion, translation, camera, name,
    2-D points); points: (number, position, color, track).
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# Camera list with one line of data per camera:", f"# Number of cameras: {len(cameras)}"]
    lines += [f"{n} {model} {w} {h} {_row(parameters)}" for n, model, w, h, parameters in cameras]
    (folder / "cameras.txt").write_text("\n".join(lines) + "\n")
    lines = ["# Image list with two lines of data per image:", "#   IMAGE_ID, QW, ...", "#   POINTS2D[]"]
    for number, quaternion, translation, camera, name, seen in images:
        lines += [f"{number} {_row(quaternion)} {_row(translation)} {camera} {name}"]
        lines += [" ".join(f"{x} {y} {point}" for x, y, point in seen)]
    (folder / "images.txt").write_text("\n".join(lines) + "\n")
    lines = [f"{n} {_row(xyz)} {_row(rgb)} 0.5 {_row(track)}" for n, xyz, rgb, track in points]
    (folder / "points3D.txt").write_text("\n".join(["# 3D point list", *lines]) + "\n")


def write_binary(folder, cameras, images, points=()):
    """Write the same in binary."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = struct.pack("<Q", len(cameras))
    for number, model, width, height, parameters in cameras:
        whole += struct.pack("<iiQQ", number, NUMBERS[model], width, height)
        whole += struct.pack(f"<{len(parameters)}d", *parameters)
    (folder / "cameras.bin").write_bytes(whole)
    whole = struct.pack("<Q", len(images))
    for number, quaternion, translation, camera, name, seen in images:
        whole += struct.pack("<i7di", number, *quaternion, *translation, camera) + name.encode() + b"\0"
        whole += struct.pack("<Q", len(seen)) + b"".join(struct.pack("<ddq", *one) for one in seen)
    (folder / "images.bin").write_bytes(whole)
    whole = struct.pack("<Q", len(points))
    for number, xyz, rgb, track in points:
        whole += struct.pack("<Q3d3BdQ", number, *xyz, *rgb, 0.5, len(track) // 2)
        whole += struct.pack(f"<{len(track)}i", *track)
    (folder / "points3D.bin").write_bytes(whole)


def _row(values):
    return " ".join(repr(value) for value in values)
