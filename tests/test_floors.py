"""Threads run down only: the rules of the house, held for every file of the package.

The second half breaks each rule on purpose, so that the checker is known to fail.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from support.floors import FLOORS, find_breaches

ROOT = Path(__file__).parents[1] / "src" / "tinsmith"
MOST_FILES = 25
"""Python files of a folder: more are not taken in at a glance."""
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py*") if path.suffix in (".py", ".pyi"))


@pytest.mark.parametrize("path", FILES)
def test_every_file_keeps_the_import_rules(path):
    broken = find_breaches(path, (ROOT / path).read_text(encoding="utf-8"), FILES)
    assert not broken, "\n" + "\n".join(map(str, broken))


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/about/how-it-works.md"])
def test_a_page_shows_the_floor_of_each_folder(page):
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", (ROOT.parents[1] / page).read_text(encoding="utf-8"), re.MULTILINE)
    shown = {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == {name: FLOORS[name] for name in shown}
    assert {name for name in FLOORS if (ROOT / name).is_dir()} <= shown.keys()


def test_the_package_was_found():
    assert "__init__.py" in FILES
    assert "_errors.py" in FILES


HOUSE = [
    "__init__.py",
    "_errors.py",
    "_config.py",
    "reference/__init__.py",
    "engines/__init__.py",
    "engines/_taichi.py",
    "frontend/__init__.py",
    "frontend/_roles.py",
    "kernels/__init__.py",
    "passes/__init__.py",
    "passes/_serial.py",
    "operation/__init__.py",
    "operation/_op.py",
    "calls/_buffers.py",
    "tracing/_torch_state.py",
    "apps/__init__.py",
    "apps/_shared.py",
    "apps/fit_image/__init__.py",
    "apps/fit_image/_model.py",
    "cli/__init__.py",
]

BAD = [
    # Floors.
    ("engines/_taichi.py", "from ..operation import op", "engines [1] imports operation [9]: threads run down only"),
    ("frontend/_roles.py", "from tinsmith import op", "frontend [4] imports __init__ [13]: threads run down only"),
    ("frontend/_roles.py", "import tinsmith", "frontend [4] imports __init__ [13]"),
    ("frontend/_roles.py", "def late():\n    from ..operation import op", "threads run down only"),
    ("passes/_serial.py", "from ..kernels import splat", "its neighbor kernels: never sideways"),
    ("_errors.py", "from .reference import twin", "its neighbor reference: never sideways"),
    ("cli/__init__.py", "import tinsmith as ts", "its neighbor __init__: never sideways"),
    ("attic/_new.py", "x = 1", "the room 'attic' stands on no floor"),
    # Faces only.
    ("operation/_op.py", "from ..frontend._roles import roles", "import its face, not frontend/_roles.py"),
    ("operation/_op.py", "from ..frontend import _roles", "import its face, not frontend/_roles.py"),
    ("operation/_op.py", "import tinsmith.frontend._roles as roles", "import its face, not frontend/_roles.py"),
    ("__init__.py", "from .operation._op import op", "import its face, not operation/_op.py"),
    ("apps/__init__.py", "from .fit_image._model import fit", "import its face, not apps/fit_image/_model.py"),
    (
        "operation/_op.py",
        "from ..frontend._lost import roles",
        "tinsmith.frontend._lost.roles is nowhere in the package",
    ),
    ("frontend/roles.py", "x = 1", "files are _named"),
    # The public face.
    ("__init__.py", "def op():\n    pass", "the public face hands names on"),
    ("__init__.py", "version = '1'", "the public face hands names on"),
    # Engines.
    ("operation/_op.py", "import taichi as ti", "engines are imported in engines/_quadrants.py and engines/_taichi.py"),
    ("operation/_op.py", "def f():\n    from quadrants.lang import impl", "engines are imported in"),
    ("engines/_taichi.py", "import taichi", "inside functions"),
    ("engines/_taichi.py", "class Taichi:\n    from taichi.lang import impl", "inside functions"),
    ("operation/_op.py", "import importlib\nimportlib.import_module('taichi.lang')", "by a string"),
    ("operation/_op.py", "__import__('quadrants')", "by a string"),
    # Python's syntax trees.
    ("operation/_op.py", "import ast", "import ast: Python is read and printed in"),
    ("passes/_serial.py", "def f():\n    from ast import walk", "import ast"),
    # Torch's private names.
    ("operation/_op.py", "import torch\ntorch._C", "torch._C: torch's private names"),
    ("operation/_op.py", "import torch as t\nt._dynamo.reset()", "torch._dynamo"),
    ("operation/_op.py", "from torch import _C", "torch._C"),
    ("operation/_op.py", "import torch._functorch.apis", "torch._functorch.apis"),
    ("operation/_op.py", "from torch._subclasses import FakeTensor", "torch._subclasses.FakeTensor"),
    ("operation/_op.py", "from torch import library as lib\nlib._del_library", "torch.library._del_library"),
    ("operation/_op.py", "import torch\ngetattr(torch, '_C')", "torch._C"),
    ("operation/_op.py", "x._version", "`._version`: torch's private names"),
    # Gradient memory.
    ("operation/_op.py", "x.grad = y", "`.grad` is touched in"),
    ("operation/_op.py", "y = x.grad.zero_()", "`.grad` is touched in"),
    ("operation/_op.py", "setattr(x, 'grad', y)", "`.grad` is touched in"),
    ("operation/_op.py", "import torch\ntorch.ones(3).grad", "`.grad` is touched in"),
    # Kernels.
    ("kernels/__init__.py", "from __future__ import annotations", "both engines refuse"),
]

GOOD = [
    ("operation/_op.py", "from .._errors import ShapeError\nfrom ..frontend import roles\nfrom . import _buffers"),
    ("operation/_op.py", "from ..frontend import roles as r, anything_that_the_face_has"),
    ("tracing/_torch_state.py", "import torch\ntorch._C\nfrom torch._dynamo import x"),
    ("calls/_buffers.py", "x.grad"),
    (
        "operation/_op.py",
        "import torch\ntorch.autograd.grad(y, x)\ng = torch.func.grad\nkernel.grad(x)\nx.requires_grad",
    ),
    ("operation/_op.py", "import torch\ntorch.__version__\nself._torch\nx._base"),
    ("engines/_taichi.py", "def lang():\n    import taichi\n    from taichi.lang import impl"),
    ("engines/_taichi.py", "lang = sys.modules.get('taichi')\nmodule == 'taichi.lang.kernel_impl'"),
    ("_config.py", "from ._errors import ConfigError"),
    ("apps/fit_image/_model.py", "from .. import _shared\nfrom ..._errors import InputError\nfrom . import anything"),
    ("cli/__init__.py", "from ..apps.fit_image import fit\nfrom ..engines import probes"),
    ("__init__.py", '"""Doc."""\nfrom .operation import op\n__all__ = ["op"]'),
    ("frontend/_roles.py", "from __future__ import annotations"),
    ("frontend/_roles.py", "import ast\nfrom ast import walk"),
]


@pytest.mark.parametrize(("path", "source", "words"), BAD)
def test_violations_are_reported(path, source, words):
    assert words in "\n".join(map(str, find_breaches(path, source, HOUSE)))


@pytest.mark.parametrize(("path", "source"), GOOD)
def test_allowed_imports_are_not_reported(path, source):
    assert not find_breaches(path, source, HOUSE)


def test_folders_of_made_up_files_exist():
    assert {Path(path).parts[0].removesuffix(".py") for path in HOUSE} <= set(FLOORS)


def count_files(folder):
    """Count the Python files of each folder, its own alone."""
    return Counter(path.parent.relative_to(folder).as_posix() for path in folder.rglob("*.py"))


def test_no_folder_has_too_many_files():
    large = {name: count for name, count in count_files(ROOT).items() if count > MOST_FILES}
    assert not large, f"a folder with more than {MOST_FILES} files is divided by topic: {large}"


def test_files_are_counted_folder_by_folder(tmp_path):
    for name in ("one.py", "two.py", "notes.txt", "inner/three.py", "inner/deep/four.py", "inner/deep/five.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert count_files(tmp_path) == {".": 2, "inner": 1, "inner/deep": 2}
