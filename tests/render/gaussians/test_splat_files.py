"""Files of splats: to the bit there and back, headers by hand, and refusals."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

import tinsmith as ts
from tinsmith.render.gaussians import export_splats, load_ply, load_splats, save_ply, save_splats


def splats(count=7, rest=15, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (rest, 3)}
    return {name: torch.randn(count, *shape, generator=draw) for name, shape in shapes.items()}


@pytest.mark.parametrize("rest", [0, 3, 8, 15, 24])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_ply_round_trips_bit_for_bit(tmp_path, count, rest):
    given = splats(count, rest)
    if count:
        given["means"][0] = torch.tensor([-0.0, 1e-45, 3.4e38])  # a denormal one, and nearly the largest
    save_ply(tmp_path / "a.ply", given)
    read = load_ply(str(tmp_path / "a.ply"))
    assert list(read) == list(given)
    for name, value in given.items():
        assert torch.equal(read[name].view(torch.int32), value.view(torch.int32)), name
        assert read[name].is_contiguous()
    save_ply(tmp_path / "b.ply", read)
    assert (tmp_path / "a.ply").read_bytes() == (tmp_path / "b.ply").read_bytes()


HEADER = b"""ply
format binary_little_endian 1.0
element vertex 2
property float x
property float y
property float z
property float nx
property float ny
property float nz
property float f_dc_0
property float f_dc_1
property float f_dc_2
property float f_rest_0
property float f_rest_1
property float f_rest_2
property float f_rest_3
property float f_rest_4
property float f_rest_5
property float f_rest_6
property float f_rest_7
property float f_rest_8
property float opacity
property float scale_0
property float scale_1
property float scale_2
property float rot_0
property float rot_1
property float rot_2
property float rot_3
end_header
"""


def test_the_file_equals_a_hand_written_one(tmp_path):
    given = splats(2, 3)
    save_ply(tmp_path / "a.ply", given)
    body = b""
    for i in range(2):
        row = [*given["means"][i], 0.0, 0.0, 0.0, *given["sh0"][i, 0]]
        for channel in range(3):
            row += [given["shN"][i, k, channel] for k in range(3)]
        row += [given["opacities"][i], *given["scales"][i], *given["quats"][i]]
        body += struct.pack("<26f", *map(float, row))
    assert (tmp_path / "a.ply").read_bytes() == HEADER + body


def test_other_writers_are_read_too(tmp_path):
    """Properties in another order, of other types, without normals, with more of them; elements before and after."""
    given = splats(4, 0)
    names = ["opacity", "x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", *(f"scale_{i}" for i in range(3))]
    row = np.dtype([(n, "<f8") for n in names] + [("red", "u1"), *((f"rot_{i}", "<f4") for i in range(4))])
    vertices = np.zeros(4, row)
    columns = {"opacity": given["opacities"]}
    for prefix, name in (("f_dc_", "sh0"), ("scale_", "scales"), ("rot_", "quats")):
        columns |= {f"{prefix}{i}": given[name].flatten(1)[:, i] for i in range(given[name].flatten(1).shape[1])}
    columns |= dict(zip("xyz", given["means"].T, strict=True))
    for name, values in columns.items():
        vertices[name] = values
    lines = ["ply", "format binary_little_endian 1.0", "comment by hand", "element camera 2", "property short a"]
    lines += ["element vertex 4", *(f"property double {n}" for n in names), "property uchar red"]
    lines += [*(f"property float32 rot_{i}" for i in range(4)), "element face 0"]
    lines += ["property list uchar int vertex_indices", "end_header", ""]
    (tmp_path / "a.ply").write_bytes("\r\n".join(lines).encode() + b"\1\2\3\4" + vertices.tobytes() + b"more")
    read = load_ply(tmp_path / "a.ply")
    assert all(torch.equal(read[name], given[name]) for name in given)


@pytest.mark.parametrize("order", ["ascii", "binary_big_endian"])
def test_the_other_formats_hold_the_same(tmp_path, order):
    """A file of ours, written again as a text or with the other byte order; something stands before and after."""
    given = splats(4, 8)
    save_ply(tmp_path / "a.ply", given)
    whole = (tmp_path / "a.ply").read_bytes()
    begin = whole.index(b"end_header") + 11
    header = whole[:begin].replace(b"binary_little_endian", order.encode())
    numbers = np.frombuffer(whole[begin:], "<f4").reshape(4, -1)
    if order == "ascii":
        face = b"element face 2\nproperty list uchar int corners\n"
        header = header.replace(b"element vertex", face + b"element vertex").replace(b"\n", b"\r\n")
        body = "3 0 1 2\n4 0 1 2 3\n" + "".join(" ".join(map(repr, row)) + " \n" for row in numbers.tolist()) + "more"
        (tmp_path / "b.ply").write_bytes(header + body.encode())
    else:
        header = header.replace(b"element vertex", b"element camera 3\nproperty short a\nelement vertex")
        (tmp_path / "b.ply").write_bytes(header + b"camera" + numbers.astype(">f4").tobytes() + b"more")
    read = load_ply(tmp_path / "b.ply")
    assert all(torch.equal(read[name], given[name]) and read[name].dtype == torch.float32 for name in given)


@pytest.mark.parametrize("order", ["ascii", "binary_big_endian", "binary_little_endian"])
def test_a_file_of_no_gaussians(tmp_path, order):
    save_ply(tmp_path / "a.ply", splats(0, 3))
    whole = (tmp_path / "a.ply").read_bytes()
    (tmp_path / "a.ply").write_bytes(whole.replace(b"binary_little_endian", order.encode()))
    assert load_ply(tmp_path / "a.ply")["shN"].shape == (0, 3, 3)


def test_other_dtypes_and_parameters_are_rounded_to_float32(tmp_path):
    given = {name: torch.nn.Parameter(value.double() / 3) for name, value in splats(3, 0).items()}
    del given["shN"]
    save_ply(tmp_path / "a.ply", given)
    read = load_ply(tmp_path / "a.ply")
    assert all(torch.equal(read[name], given[name].float()) for name in given) and read["shN"].shape == (3, 0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_safetensors_round_trip_bit_for_bit(tmp_path, dtype):
    given = {name: value.to(dtype) for name, value in splats().items()}
    save_splats(tmp_path / "a.safetensors", given)
    read = load_splats(tmp_path / "a.safetensors")
    assert set(read) == set(given)
    assert all(torch.equal(read[name], given[name]) and read[name].dtype == dtype for name in given)


def test_export_leaves_out_what_is_not_finite(tmp_path):
    given = splats(6, 3)
    save_ply(tmp_path / "a.ply", given)
    assert export_splats(**given) == (tmp_path / "a.ply").read_bytes()
    given["shN"][1, 2, 0], given["opacities"][4] = torch.inf, torch.nan
    whole = export_splats(**given, save_to=tmp_path / "b.ply")
    assert whole == (tmp_path / "b.ply").read_bytes()
    read = load_ply(tmp_path / "b.ply")
    assert all(torch.equal(read[name], given[name][[0, 2, 3, 5]]) for name in given)
    with pytest.raises(ts.ArgumentError, match="ply_compressed"):
        export_splats(**given, format="ply_compressed")
    with pytest.raises(ts.ShapeError, match="`opacities` of `export_splats` has the wrong shape"):
        export_splats(**given | {"opacities": torch.zeros(6, 1)})


WRONG = {
    "missing": (lambda s: s.pop("quats"), ts.ArgumentError, "missing +quats"),
    "unknown": (lambda s: s.update(colors=torch.zeros(7, 3)), ts.ArgumentError, "unknown +colors"),
    "rows": (
        lambda s: s.update(scales=torch.zeros(6, 3)),
        ts.ShapeError,
        r"`scales` of `\w+` has the wrong shape(.|\n)*N is 7",
    ),
    "axes": (lambda s: s.update(sh0=torch.zeros(7, 3)), ts.ShapeError, r"\[N, 1, 3\] = \(7, 3\)"),
    "flat": (lambda s: s.update(opacities=torch.zeros(7, 1)), ts.ShapeError, r"\[N\] = \(7, 1\)"),
    "degree": (lambda s: s.update(shN=torch.zeros(7, 4, 3)), ts.ShapeError, "K is 0, 3, 8, 15 or 24"),
    "channels": (lambda s: s.update(shN=torch.zeros(7, 3, 1)), ts.ShapeError, r"\[N, K, 3\] = \(7, 3, 1\)"),
    "nan": (lambda s: s["means"][3].fill_(torch.nan), ts.ArgumentError, r"`means` of `\w+` is not finite\n +values +3"),
}


@pytest.mark.parametrize("save", [save_ply, save_splats])
@pytest.mark.parametrize("what", WRONG)
def test_invalid_splats_are_not_written(tmp_path, save, what):
    change, kind, words = WRONG[what]
    given = splats()
    change(given)
    with pytest.raises(kind, match=words):
        save(tmp_path / "a", given)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("save", [save_ply, save_splats])
def test_a_folder_that_is_not_there(tmp_path, save):
    with pytest.raises(ts.InputError, match="the splats cannot be written(.|\n)*none"):
        save(tmp_path / "none" / "a", splats())


def as_text(whole, body):
    """Replace the numbers of a binary file by a text."""
    header = whole[: whole.index(b"end_header") + 11].replace(b"binary_little_endian", b"ascii")
    return header + body.encode()


BROKEN = {
    "no PLY": (lambda b: b"solid" + b, "it is not a PLY file"),
    "no header": (lambda b: b[:40], "it is not a PLY file"),
    "another format": (lambda b: b.replace(b"binary_little", b"binary_middle"), "its format is binary_middle_endian"),
    "numbers in a text": (lambda b: b.replace(b"binary_little_endian", b"ascii"), "its vertices: "),
    "a short text": (lambda b: as_text(b, "1 2\n" * 60), "its vertices: "),
    "a text of words": (lambda b: as_text(b, "one " * 26 + "\n" + "1 " * 26), "its vertices: could not convert"),
    "a text of one line": (lambda b: as_text(b, "1.0 " * 26 + "\n"), "2 vertices, but 1 lines follow"),
    "an empty text": (lambda b: as_text(b, "1\n"), "2 vertices of 26 numbers, but 2 bytes follow"),
    "no format": (lambda b: b.replace(b"format binary_little_endian 1.0\n", b""), "its format is missing"),
    "cut": (lambda b: b[:-1], "2 vertices of 104 bytes, but 207 bytes follow"),
    "negative": (lambda b: b.replace(b"vertex 2", b"vertex -2"), "a line of its header is invalid: element vertex -2"),
    "no properties": (lambda b: b"ply\nformat ascii 1.0\nelement vertex 1\nend_header\n1 2\n", "has no properties"),
    "a list before": (
        lambda b: b.replace(b"element", b"element face 9999999\nproperty float x\nelement"),
        "bytes before its element `vertex` begins",
    ),
    "infinite": (lambda b: b[:-4] + b"\0\0\x80\x7f", "`quats` of `load_ply` is not finite"),
    "no vertices": (lambda b: b.replace(b"element vertex", b"element point"), "it has no element `vertex`"),
    "no count": (
        lambda b: b.replace(b"vertex 2", b"vertex two"),
        "a line of its header is invalid: element vertex two",
    ),
    "a type": (lambda b: b.replace(b"float x", b"half x"), "a line of its header is invalid: property half x"),
    "a list": (
        lambda b: b.replace(b"property float x", b"property list uchar int x"),
        "its element `vertex` has list properties",
    ),
    "no opacity": (lambda b: b.replace(b"float opacity", b"float density"), "there is no property opacity"),
    "one less": (lambda b: b.replace(b"float f_rest_8", b"float rest_8"), "8 properties f_rest_"),
    "twice": (lambda b: b.replace(b"float nx", b"float x"), "element vertex: "),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_files_are_refused(tmp_path, what):
    change, words = BROKEN[what]
    path = tmp_path / "a.ply"
    save_ply(path, splats(2, 3))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ts.InputError, match="the splats cannot be read") as caught:
        load_ply(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_broken_safetensors_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(ts.InputError, match="the splats cannot be read"):
        load_splats(path)
    path.write_bytes(b"no tensors")
    with pytest.raises(ts.InputError, match="the splats cannot be read"):
        load_splats(path)
    from safetensors.torch import save_file

    save_file({"means": torch.zeros(2, 3)}, path)
    with pytest.raises(ts.InputError, match="missing +scales"):
        load_splats(path)
