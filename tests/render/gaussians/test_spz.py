"""SPZ: how far off numbers are after it, its bytes by hand, its axes, and refusals."""

from __future__ import annotations

import gzip
import struct

import pytest
import torch

import tinsmith as ts
from tinsmith.reference import gaussian_colors, gaussian_covariance
from tinsmith.render.gaussians import load_spz, save_spz

HALF_TURN = torch.diag(torch.tensor([1.0, -1.0, -1.0]))
"""From x right, y down, z ahead to x right, y up, z back."""


def splats(count=200, rest=15, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (rest, 3)}
    tensors = {name: torch.randn(count, *shape, generator=draw) for name, shape in shapes.items()}
    return tensors | {"scales": tensors["scales"] - 4, "shN": (0.3 * tensors["shN"]).clamp(-0.99, 0.99)}


@pytest.mark.parametrize("rest", [0, 3, 8, 15, 24])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_values_round_trip_within_the_documented_precision(tmp_path, count, rest):
    given = splats(count, rest)
    save_spz(tmp_path / "a.spz", given, sh_bits=(8, 8))
    read = load_spz(str(tmp_path / "a.spz"))
    assert list(read) == list(given)
    assert {value.dtype for value in read.values()} == {torch.float32}
    held = given | {"sh0": given["sh0"].clamp(-3.32, 3.32)}
    for name, bound in {"means": 1 / 8192, "scales": 1 / 32, "sh0": 1 / 76, "shN": 1 / 256}.items():
        torch.testing.assert_close(read[name], held[name], rtol=0, atol=bound)
    torch.testing.assert_close(read["opacities"].sigmoid(), given["opacities"].sigmoid(), rtol=0, atol=1.01 / 510)
    sizes = torch.tensor([1.0, 2.0, 3.0]).expand(count, 3)
    shapes = [gaussian_covariance(one["quats"], sizes) for one in (read, given)]  # of quats of any length and sign
    torch.testing.assert_close(*shapes, rtol=0, atol=0.03)
    save_spz(tmp_path / "b.spz", given, sh_bits=(8, 8))
    assert (tmp_path / "a.spz").read_bytes() == (tmp_path / "b.spz").read_bytes()


def test_the_bytes_of_one_gaussian_by_hand(tmp_path):
    one = {
        "means": torch.tensor([[1.5, -2.0, 0.25]]),
        "scales": torch.tensor([[-10.0, -4.0, 9.0]]),
        "quats": torch.tensor(
            [[-2.0, 0.0, 2.0, 0.0]]
        ),  # w and y alike: the first of x y z w counts, and is made positive
        "opacities": torch.tensor([0.0]),
        "sh0": torch.tensor([[[0.0, 9.0, -9.0]]]),
        "shN": torch.tensor([[[0.5, 0.0, -0.5], [0.0625, 0.0, 0.0], [1.0, -1.0, 0.03]]]),
    }
    save_spz(tmp_path / "one.spz", one, antialiased=True)
    body = bytes.fromhex("001800 002000 00fcff")  # 1.5, 2 and -0.25, times 4096
    body += bytes([128]) + bytes([128, 255, 0]) + bytes([0, 96, 255])
    body += struct.pack("<I", 1 << 30 | 0 << 20 | 0 << 10 | (0 << 9 | 511))  # y is largest; x, z, and w as far from 0
    body += bytes([64, 128, 192, 120, 128, 128, 248, 0, 128])  # of y and z the sign changes, of x not
    header = b"NGSP" + struct.pack("<IIBBBB", 3, 1, 1, 12, 1, 0)
    assert gzip.decompress((tmp_path / "one.spz").read_bytes()) == header + body
    read = load_spz(tmp_path / "one.spz")
    assert read["means"].tolist() == one["means"].tolist()
    assert read["shN"][0, 0].tolist() == [0.5, 0.0, -0.5]
    torch.testing.assert_close(read["quats"], torch.tensor([[0.5**0.5, 0.0, -(0.5**0.5), 0.0]]))


def test_axes_are_turned_and_the_scene_with_them(tmp_path):
    """What the file says, read without turning back, is the scene after half a turn around x."""
    given = splats(20, 24)
    save_spz(tmp_path / "a.spz", given, sh_bits=(8, 8))
    ours = load_spz(tmp_path / "a.spz")
    whole = gzip.decompress((tmp_path / "a.spz").read_bytes())
    stored = torch.frombuffer(bytearray(whole[-20 * 24 * 3 :]), dtype=torch.uint8).view(20, 24, 3)
    directions = torch.randn(20, 3, dtype=torch.float64)
    flat = torch.zeros(20, 1, 3, dtype=torch.float64)
    inside = gaussian_colors(4, directions, torch.cat([flat, ours["shN"].double()], 1))
    outside = torch.cat([flat, (stored.double() - 128) / 128], 1)
    torch.testing.assert_close(gaussian_colors(4, directions @ HALF_TURN.double(), outside), inside)
    x, y, z = (int.from_bytes(whole[16 + 3 * i : 19 + 3 * i], "little", signed=True) / 4096 for i in range(3))
    assert torch.tensor([x, y, z]) @ HALF_TURN == pytest.approx(ours["means"][0].tolist())


def test_version_2_has_other_rotations(tmp_path):
    body = bytes(9) + bytes([128]) + bytes(3) + bytes(3) + bytes([255, 0, 127])
    (tmp_path / "two.spz").write_bytes(gzip.compress(b"NGSP" + struct.pack("<IIBBBB", 2, 1, 0, 12, 0, 0) + body))
    read = load_spz(tmp_path / "two.spz")
    torch.testing.assert_close(read["quats"], torch.tensor([[0.0, 1.0, 1.0, 0.5 / 127.5]]), rtol=0, atol=1e-6)


def test_opacities_are_finite(tmp_path):
    given = splats(2, 0) | {"opacities": torch.tensor([-50.0, 50.0])}
    save_spz(tmp_path / "a.spz", given)
    read = load_spz(tmp_path / "a.spz")
    assert read["opacities"].isfinite().all() and read["opacities"].sigmoid().round().tolist() == [0, 1]
    save_spz(tmp_path / "b.spz", read)
    assert torch.equal(load_spz(tmp_path / "b.spz")["opacities"], read["opacities"])


def test_a_large_scene_keeps_fewer_bits(tmp_path):
    given = splats(3, 0)
    given["means"][1] = torch.tensor([5000.0, -5000.0, 1.0])
    save_spz(tmp_path / "a.spz", given)
    torch.testing.assert_close(load_spz(tmp_path / "a.spz")["means"], given["means"], rtol=0, atol=0.5**11)
    given["means"][1] = 1e7
    with pytest.raises(ts.ArgumentError, match="too far from the origin"):
        save_spz(tmp_path / "a.spz", given)


def header(version=3, count=1, degree=0, flags=0):
    return b"NGSP" + struct.pack("<IIBBBB", version, count, degree, 12, flags, 0)


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        (b"no gzip", "it is not a gzip file"),
        (gzip.compress(header())[:-9], "it is not a gzip file"),
        (gzip.compress(b"NGSP"), "there is no header"),
        (gzip.compress(b"PSGN" + header()[4:]), "there is no header"),
        (gzip.compress(header(version=1) + bytes(20)), "its version is 1, not 2 or 3"),
        (gzip.compress(header(degree=5) + bytes(20)), "degree 5, more than 4"),
        (gzip.compress(header(flags=2) + bytes(20)), "it has extensions"),
        (gzip.compress(header() + bytes(19)), "1 Gaussians of 20 bytes, but 19 bytes follow"),
        (gzip.compress(header() + bytes(21)), "1 Gaussians of 20 bytes, but more than 20 bytes follow"),
        (gzip.compress(header(count=2**32 - 1)), "4294967295 Gaussians of 20 bytes; at most"),
    ],
    # gzip writes the time: ids of bytes would differ between the processes that share the tests.
    ids=["no gzip", "cut", "short", "magic", "version", "degree", "extensions", "too few", "too many", "bomb"],
)
def test_broken_files(tmp_path, whole, words):
    (tmp_path / "broken.spz").write_bytes(whole)
    with pytest.raises(ts.InputError, match=words):
        load_spz(tmp_path / "broken.spz")


def test_other_refusals(tmp_path):
    with pytest.raises(ts.InputError, match="No such file"):
        load_spz(tmp_path / "none.spz")
    with pytest.raises(ts.InputError, match="cannot be written"):
        save_spz(tmp_path, splats(1))
    with pytest.raises(ts.ArgumentError, match="`scales` of `save_spz` is not finite"):
        save_spz(tmp_path / "a.spz", splats(1) | {"scales": torch.full((1, 3), torch.nan)})
    for bits in ((5,), (0, 4), (5, 9), (5.0, 4)):
        with pytest.raises(ts.ArgumentError, match="must be two integers from 1 to 8"):
            save_spz(tmp_path / "a.spz", splats(1), sh_bits=bits)
