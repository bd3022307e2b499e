"""The kernels of the installed Genesis, found in its source: nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

UNLAUNCHED: list[tuple[str, str]] = [
    ("_kernel_solve_graph$", "Genesis launches it on a GPU only"),
    ("_grad$|_grads?_|_bw$|backward|adjoint|_replay$|copy_acc$|no_check$", "part of Genesis' own backward pass"),
]
"""Patterns of kernels that no scene launched, and the reason. Others have the reason that the source tells."""
PLANNED: list[tuple[str, str]] = [
    ("sensors[.]", "sensors"),
    ("RRT[.]|mpr[.]clear$", "rigid_reaching_fields"),
    ("path_planning|inverse_kinematics", "rigid_reaching"),
    ("kinematic_state|vverts|refresh_grouped", "rigid_kinematic"),
    ("raycast_qd|update_all_verts", "rigid_rays"),
    ("sap_coupler|bvh", "coupling_sap"),
    ("constraint_solver_kernel_masked_clear", "rigid_mixed_shapes"),
    ("masked", "rigid_masked"),
    ("narrow_phase_diff", "rigid_backward_contact"),
    ("_grad$|_bw$|adjoint|_replay$|copy_acc$|no_check$|compute_gradients$|without_qacc$", "rigid_backward"),
    ("qvel|kernel_reset$|update_acc$|forward_dynamics$|mass_matrix$|update_geoms$", "rigid_unused"),
    ("hibernation|wake_?up|links_pos$|links_quat$|dynamic_constraint|contacts$", "rigid_sleeping"),
    ("terrain|drone", "rigid_terrain"),
    ("heterogeneous", "rigid_mixed_shapes"),
    ("sf_solver", "smoke"),
    ("SPHSolver", "sph_dfsph"),
    ("HybridEntity", "hybrid"),
    ("compute_F_tmp_only", "mpm_water"),
    ("MPMSolver.*(actu|muscle|free)", "mpm_gradients"),
    ("mpm_surface|_reset_mpm", "mpm_sand_cpic"),
    ("PBD3DEntity|solve_volume", "pbd_elastic"),
    ("PBDParticleEntity|PBDFreeParticleEntity", "pbd_liquid"),
    ("_add_cloth", "fem_cloth"),
    ("FEM.*(linked_vertex|hard_constraints)", "fem_held"),
    ("FEM.*(pcg|linesearch|constraint|preconditioner|setup_pos_vel|_get_verts_pos)", "fem_implicit"),
]
"""Patterns of kernels, and the scene that is made to launch them: the reason where it was not run."""


@dataclass(frozen=True)
class KernelSource:
    """A kernel as its source declares it.

    Attributes:
        module: the dotted name of its module, without `genesis.`.
        name: its qualified name.
        line: of its `def`.
        kinds: of its parameters: "self", "struct", "tensor", "ndarray", "template", "number".
        returns: the annotation of its result; "" if there is none.
    """

    module: str
    name: str
    line: int
    kinds: tuple[str, ...]
    returns: str

    @property
    def key(self) -> str:
        """The name that results are kept under."""
        return f"{self.module}.{self.name}"


def find_kernels() -> list[KernelSource]:
    """Return all kernels of the installed Genesis, by module and line."""
    spec = importlib.util.find_spec("genesis")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    kernels = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        kernels += _find_in(ast.parse(path.read_text(encoding="utf-8")), module, "")
    return kernels


def _find_in(node: ast.AST, module: str, prefix: str) -> list[KernelSource]:
    kernels = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and _is_kernel(child):
            kinds = tuple(_kind(one) for one in child.args.args)
            returns = ast.unparse(child.returns) if child.returns else ""
            returns = "" if returns == "None" else returns
            kernels.append(KernelSource(module, prefix + child.name, child.lineno, kinds, returns))
        is_scope = isinstance(child, (ast.ClassDef, ast.FunctionDef))
        kernels += _find_in(child, module, f"{prefix}{child.name}." if is_scope else prefix)
    return kernels


def _is_kernel(function: ast.FunctionDef) -> bool:
    texts = [ast.unparse(one) for one in function.decorator_list]
    return any(text == "qd.kernel" or text.startswith("qd.kernel(") for text in texts)


def _kind(parameter: ast.arg) -> str:
    text = ast.unparse(parameter.annotation) if parameter.annotation else ""
    if not text:
        return "self"
    if text.startswith("qd.types.ndarray"):
        return "ndarray"
    if text.startswith("qd.template"):
        return "template"
    if text == "qd.Tensor":
        return "tensor"
    return (
        "number" if text.rpartition(".")[2] in ("i32", "int", "int32", "f32", "float", "float32", "bool") else "struct"
    )


def count_uses() -> dict[str, Counter[str]]:
    """Return how often the source of Genesis has each name, defines it, and calls it or its gradient."""
    spec = importlib.util.find_spec("genesis")
    assert spec is not None and spec.origin is not None
    uses: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(Path(spec.origin).parent.rglob("*.py")):
        for before, name, after in re.findall(
            r"(def )?\b([A-Za-z_]\w+)(\.grad\(|\()?", path.read_text(encoding="utf-8")
        ):
            uses[name]["defined" if before else "gradient" if "grad" in after else "called" if after else "named"] += 1
    return uses


def explain_absence(kernel: KernelSource, uses: dict[str, Counter[str]], run: set[str]) -> str:
    """Return why no scene launched a kernel, as far as the source says."""
    for pattern, words in UNLAUNCHED:
        if re.search(pattern, kernel.key):
            return words
    counts = uses[kernel.name.rpartition(".")[2]]
    if not counts["called"] and counts["gradient"]:
        return "Genesis calls its gradient alone"
    if not counts["called"] and not counts["named"]:
        return "Genesis never calls it"
    planned = next((scene for pattern, scene in PLANNED if re.search(pattern, kernel.key)), None)
    if planned and planned not in run:
        return f"the scene {planned} was not run"
    return "not launched by the scenes that were run"
