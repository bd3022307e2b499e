"""No cycles among the modules of the package, and made-up ones that the search finds."""

from __future__ import annotations

from pathlib import Path

from support.import_cycles import find_import_cycles

ROOT = Path(__file__).parents[1] / "src" / "tinsmith"


def test_no_modules_import_each_other():
    sources = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    assert len(sources) > 300
    assert find_import_cycles(sources) == []


def test_made_up_cycles_are_found():
    sources = {
        "apps/__init__.py": "from ._first import a",
        "apps/_first.py": "from ._second import b\nfrom .._errors import c",
        "apps/_second.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import _third",
        "apps/_third.py": "def f():\n    import tinsmith.apps._first",
        "apps/scenes/__init__.py": "from ._box import Box",
        "apps/scenes/_box.py": "from ..scenes import d",
        "apps/_alone.py": "from . import _first, _third\nfrom .scenes import Box\nimport torch.apps._alone",
        "_errors.py": "from ._errors import c",
    }
    assert find_import_cycles(sources) == [
        ["_errors.py"],
        ["apps/_first.py", "apps/_second.py", "apps/_third.py"],
        ["apps/scenes/__init__.py", "apps/scenes/_box.py"],
    ]
    sources["apps/_third.py"] = sources["_errors.py"] = sources["apps/scenes/_box.py"] = ""
    assert find_import_cycles(sources) == []
