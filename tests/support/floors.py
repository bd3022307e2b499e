"""The rules of the house, read off the syntax tree of each file. CONTRIBUTING.md tells them in words.

`find_breaches(path, source, files)` lists what one file does against them; tests/test_floors.py asks it
about every file of the package, and about made-up files that break each rule. Nothing is imported
or run. Names are followed through `import ... as ...`, no further: the rules are for colleagues,
not for adversaries.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

PACKAGE = "tinsmith"

# A room is a folder, or a file that stands beside them, below src/tinsmith.
FLOORS = {
    "_version": 0,
    "_errors": 0,
    "_cache": 0,
    "_config": 0,
    "_extras": 0,
    "_html": 0,
    "_integers": 0,
    "_lazy": 0,
    "_offers": 0,
    "_output": 0,
    "_preparation": 0,
    "_suggestions": 0,
    "_tracebacks": 0,
    "_user_warnings": 0,
    "reference": 0,
    "_untrusted": 1,
    "_disk_cache": 2,
    "_machine": 3,
    "spec": 1,
    "engines": 1,
    "ir": 2,
    "tracing": 2,
    "analyses": 3,
    "codegen": 3,
    "frontend": 4,
    "kernels": 4,
    "linter": 5,
    "passes": 4,
    "compiling": 6,
    "calls": 7,
    "torch_side": 8,
    "operation": 9,
    "layers": 10,
    "nn": 10,
    "time": 10,
    "doctor": 11,
    "render": 11,
    "apps": 12,
    "cli": 13,
    "testing": 13,
    "__init__": 13,
    "__main__": 14,
}
LATE = "__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)"
SUGGESTING = "__getattr__ = _suggestions.attach_suggestions(__name__, __getattr__, __all__)"
"""What the public face may say: its stub, which keeps the same rules, tells which names come from where."""
GROUND = frozenset(
    {"_version", "_errors", "_cache", "_config", "_extras", "_integers", "_suggestions", "_tracebacks"}
)  # one room in eight files: they may know each other

ENGINES = frozenset({"taichi", "quadrants"})
ENGINE_FILES = frozenset({"engines/_taichi.py", "engines/_quadrants.py"})
# Where Python's syntax trees are handled: elsewhere a kernel is IR.
SYNTAX_TREE_ROOMS = ("engines", "codegen", "frontend", "linter")
TORCH_PRIVATE_FILES = frozenset({"tracing/_torch_state.py"})
# An optimizer reads the gradients that backward left: nn/optimizers has one file for it.
# An engine keeps the gradient that replaces a function's own as the function's `.grad`: no tensor is touched there.
# And a field's gradient is a field.
GRAD_FILES = frozenset(
    {
        "calls/_buffers.py",
        "engines/_custom_gradients.py",
        "engines/_fields.py",
        "nn/optimizers/_gradients.py",
    }
)


@dataclass(frozen=True)
class Breach:
    """One place that breaks a rule."""

    path: str
    line: int
    words: str

    def __str__(self) -> str:
        return f"src/{PACKAGE}/{self.path}:{self.line}: {self.words}"


def find_breaches(path: str, source: str, files: Collection[str]) -> list[Breach]:
    """Find every breach of the rules in the file `path` (relative to src/tinsmith, as all of `files`)."""
    tree = ast.parse(source)
    imports = list(list_imports(path, tree))
    all_breaches = [*_file_itself(path, tree)]
    for item in imports:
        all_breaches += _floors(path, item, files)
        all_breaches += _engines(path, item)
        all_breaches += _syntax_trees(path, item)
    all_breaches += _engines_by_string(tree)
    all_breaches += _torch_private(path, tree, imports)
    all_breaches += _grad(path, tree, _aliases(imports))
    return [Breach(path, line, words) for line, words in sorted(set(all_breaches))]


_Found = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class _Import:
    """One name that an import statement binds, with everything made absolute."""

    target: str  # "tinsmith.engines._taichi", "torch.autograd"
    bound: str  # what the file calls it
    meaning: str  # what that name stands for: `import torch.func` binds "torch"
    line: int
    inside_function: bool


def list_imports(path: str, tree: ast.Module) -> Iterator[_Import]:
    for node, inside in _with_scope(tree, inside_function=False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield _Import(alias.name, alias.asname or top, alias.name if alias.asname else top, node.lineno, inside)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, node)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield _Import(name, alias.asname or alias.name, name, node.lineno, inside)


def _with_scope(node: ast.AST, *, inside_function: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, inside_function
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _with_scope(child, inside_function=inside_function or function)


def _absolute(path: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    here = (PACKAGE, *PurePosixPath(path).parent.parts)
    parts = here[: len(here) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _file_itself(path: str, tree: ast.Module) -> _Found:
    name = PurePosixPath(path).stem
    if not name.startswith("_"):
        yield 1, f"files are _named; the folder's face hands their names on: _{name}.py"
    if _room(path) not in FLOORS:
        yield 1, f"the room {_room(path)!r} stands on no floor: give it one in tests/support/floors.py"
    if path.startswith("kernels/"):
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                yield node.lineno, "both engines refuse kernels in a file with a __future__ import of annotations"
    if path in ("__init__.py", "__init__.pyi"):
        yield from _only_hands_on(tree)


def _only_hands_on(tree: ast.Module) -> _Found:
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        names_all = isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]
        says_how = ast.unparse(node).startswith(("_offers.", "_tracebacks.install"))
        is_late = ast.unparse(node) in (LATE, SUGGESTING)
        if not (docstring or names_all or is_late or says_how or isinstance(node, ast.Import | ast.ImportFrom)):
            yield node.lineno, "the public face hands names on and defines nothing"


def _floors(path: str, item: _Import, files: Collection[str]) -> _Found:
    if item.target.split(".")[0] != PACKAGE:
        return
    target = find_file(item.target, files)
    if target is None:
        yield item.line, f"{item.target} is nowhere in the package"
        return
    here, there = _room(path), _room(target)
    floor_here, floor_there = FLOORS.get(here, -1), FLOORS.get(there, -1)
    same_room = here == there or {here, there} <= GROUND
    if not same_room and floor_there == floor_here:
        yield item.line, f"{here} [{floor_here}] imports its neighbor {there}: never sideways"
    if not same_room and floor_there > floor_here:
        yield item.line, f"{here} [{floor_here}] imports {there} [{floor_there}]: threads run down only"
    if not _may_open(path, target):
        yield item.line, f"from another folder import its face, not {target}"


def find_file(target: str, files: Collection[str]) -> str | None:
    """Return the file of a dotted name: a module, a package's face, or a name of either."""
    parts = target.split(".")[1:]
    for length in range(len(parts), -1, -1):
        stem = "/".join(parts[:length])
        candidates = (f"{stem}/__init__.py", f"{stem}.py") if stem else ("__init__.py",)
        # A name that no file has is a name from a file: only its last part may be missing.
        file = next((candidate for candidate in candidates if candidate in files), None)
        if file is not None:
            return file if length >= len(parts) - 1 else None
    return None


def _may_open(path: str, target: str) -> bool:
    """Return True for a file of the same folder, of a folder that contains it, or any package's face."""
    folder = PurePosixPath(target).parent
    at_the_root = folder == PurePosixPath(".")  # `_errors.py` and its like: rooms of one file, without a face
    face = PurePosixPath(target).name == "__init__.py"
    return face or at_the_root or folder in PurePosixPath(path).parents


def _room(path: str) -> str:
    return PurePosixPath(path).parts[0].removesuffix(".py").removesuffix(".pyi")


def _engines(path: str, item: _Import) -> _Found:
    if item.target.split(".")[0] not in ENGINES:
        return
    if path not in ENGINE_FILES:
        yield item.line, f"import {item.target}: engines are imported in {' and '.join(sorted(ENGINE_FILES))} alone"
    elif not item.inside_function:
        yield item.line, f"import {item.target}: engines are imported inside functions, once somebody needs them"


def _syntax_trees(path: str, item: _Import) -> _Found:
    is_allowed = _room(path) in SYNTAX_TREE_ROOMS
    if item.target.split(".")[0] == "ast" and not is_allowed:
        yield item.line, f"import ast: Python is read and printed in {', '.join(SYNTAX_TREE_ROOMS)} alone"


def _engines_by_string(tree: ast.Module) -> _Found:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        by_string = ast.unparse(call.func).rpartition(".")[2] in {"import_module", "__import__"}
        name = call.args[0]
        if by_string and isinstance(name, ast.Constant) and str(name.value).split(".")[0] in ENGINES:
            yield call.lineno, f"import of {name.value} by a string: say `import` where engines may be imported"


def _aliases(imports: list[_Import]) -> dict[str, str]:
    return {item.bound: item.meaning for item in imports}


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """Return `a.b.c` with `a` replaced by what it was imported as; "" if it is no chain of names."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, aliases)
        return base and f"{base}.{node.attr}"
    return ""


def _torch_private(path: str, tree: ast.Module, imports: list[_Import]) -> _Found:
    if path in TORCH_PRIVATE_FILES:
        return
    used = [(item.line, item.target) for item in imports]
    aliases = _aliases(imports)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used.append((node.lineno, _dotted(node, aliases)))
        elif isinstance(node, ast.Call) and (name := _attribute_by_string(node)):
            used.append((node.lineno, f"{_dotted(node.args[0], aliases)}.{name}"))
        if isinstance(node, ast.Attribute) and node.attr == "_version":
            yield node.lineno, f"`._version`: torch's private names are for {' and '.join(TORCH_PRIVATE_FILES)} alone"
    for line, name in used:
        parts = name.split(".")
        if parts[0] == "torch" and any(_private(part) for part in parts[1:]):
            yield line, f"{name}: torch's private names are for {' and '.join(TORCH_PRIVATE_FILES)} alone"


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _attribute_by_string(call: ast.Call) -> str:
    """Return the attribute that `getattr(x, "name")` and the like read."""
    by_string = isinstance(call.func, ast.Name) and call.func.id in {"getattr", "setattr", "delattr", "hasattr"}
    if by_string and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
        return str(call.args[1].value)
    return ""


def _grad(path: str, tree: ast.Module, aliases: dict[str, str]) -> _Found:
    if path in GRAD_FILES:
        return
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            # `torch.autograd.grad` and `kernel.grad(...)` are functions; a tensor's `.grad` is never called.
            touched = id(node) not in called and not _dotted(node, aliases).startswith("torch.")
        else:
            touched = isinstance(node, ast.Call) and _attribute_by_string(node) == "grad"
        if touched:
            yield node.lineno, f"`.grad` is touched in {' and '.join(sorted(GRAD_FILES))} alone"
