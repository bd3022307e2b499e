"""benchmarks/peers.py runs, checks every way with float64, and names the peers that are missing."""

import pytest

from support.benchmarks import run_benchmark

WITHOUT_PEERS = """\
import runpy, sys
for name in ("drjit", "numba", "warp"):
    sys.modules[name] = None  # as if it was not installed
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.costly
def test_a_quick_run_without_peers_writes_a_page_and_names_who_is_missing(tmp_path):
    kernels = ["--only", "saxpy", "ragged", "blend"]
    done = run_benchmark("-c", WITHOUT_PEERS, "peers.py", "--quick", *kernels, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "peers-cpu.md").read_text(encoding="utf-8")
    assert "| times the faster of ours | saxpy | ragged | blend |" in page
    for peer in ("Numba", "Warp", "Dr.Jit"):
        assert f"- {peer} (" in page and f"| {peer} |" not in page
    for who in ("tinsmith, taichi", "tinsmith, quadrants", "torch"):
        assert page.count(f"| {who} |") == 4
    assert "computes something else" not in page
