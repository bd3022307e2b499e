"""The kernels of the installed Genesis, found in its source: nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path


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
