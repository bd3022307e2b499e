"""Genesis, unedited: helpers of its geometry as ops, and kernels of its solvers as functions of their own state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GEOMETRY = (
    "quat_to_R", "rotvec_to_quat", "quat_to_rotvec", "transform_by_quat", "quat_mul", "xyz_to_quat", "tet_volume",
)  # fmt: skip


def _is_installed() -> bool:
    try:
        return bool(metadata.version("genesis-world"))
    except metadata.PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.genesis,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not _is_installed(), reason="Genesis is not installed: pip install genesis-world==1.4.5"),
]


def _run(*arguments: str) -> str:
    """Run Python in a process of its own: Genesis starts the engine as it wants it."""
    path = os.pathsep.join([str(HERE.parent), str(HERE.parents[1] / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _run_program(name: str) -> dict:
    """Run a program of this folder. Return the results that it prints."""
    printed = _run(str(HERE / name))
    (line,) = [one for one in printed.splitlines() if one.startswith("RESULTS ")]
    return json.loads(line.removeprefix("RESULTS "))


@pytest.fixture(scope="module")
def geometry():
    return _run_program("geometry.py")


@pytest.mark.parametrize("name", GEOMETRY)
def test_a_helper_of_its_geometry_has_the_right_value_and_derivative(geometry, name):
    value, slope = geometry[name]
    assert value < 1e-12
    assert slope < 1e-8


def test_kinematics_of_a_chain_equal_those_of_torch_with_their_gradients():
    off = _run_program("kinematics.py")
    assert set(off) == {"positions", "speeds", "gradient of qpos", "gradient of vel"}
    assert max(off.values()) < 1e-12


def test_rollouts_of_liquid_and_elements_have_the_gradient_of_differences():
    off = _run_program("soft_rollouts.py")
    assert set(off) == {"drop", "ball"}
    for one in off.values():
        assert one["value"] < 1e-13
        assert one["gradient"] < 1e-6


@pytest.fixture(scope="module")
def mpm(tmp_path_factory):
    """Return the results for MPM's kernels that take no struct."""
    log = tmp_path_factory.mktemp("mpm")
    (log / "kernels").mkdir()
    _run("-m", "genesis_world", "scene", "mpm_small", "--log", str(log), "--only", "MPMSolver.compute_F_tmp")
    return {one["kernel"].rpartition(".")[2]: one for one in map(_load, (log / "kernels").glob("*.json"))}


def _load(path: Path) -> dict:
    return json.loads(path.read_text())


def test_a_kernel_of_mpm_has_the_gradient_of_its_own_state(mpm):
    one = mpm["compute_F_tmp"]
    assert one["verdict"] == "right", one["detail"]
    assert one["numbers"]["bitwise"]
    assert one["numbers"]["gradient_off"] < 1e-8
