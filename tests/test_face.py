"""Faces keep their word: `__all__` is sorted, complete and true, and what is public is explained."""

from __future__ import annotations
import __future__

import importlib
import importlib.metadata
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import tinsmith

SOURCES = Path(tinsmith.__file__).parents[1]
FACES = sorted(".".join(path.parent.relative_to(SOURCES).parts) for path in SOURCES.glob("tinsmith/**/__init__.py"))

_NO_NAMES_OF_OURS = (ModuleType, __future__._Feature)  # imported modules, and `annotations` from __future__


@pytest.fixture(params=FACES)
def face(request):
    return importlib.import_module(request.param)


def test_all_is_sorted_without_repeats(face):
    assert list(face.__all__) == sorted(set(face.__all__))


def test_every_name_in_all_resolves(face):
    missing = [name for name in face.__all__ if not hasattr(face, name)]
    assert not missing, f"{face.__name__}.__all__ promises {missing}"


def test_no_public_name_is_left_out_of_all(face):
    assert not _left_out(face), f"{face.__name__} has public names that are not in __all__"


def test_the_face_and_its_public_names_have_docstrings(face):
    assert face.__doc__
    silent = [name for name in face.__all__ if _needs_docstring(getattr(face, name)) and not _own_docstring(face, name)]
    assert not silent, f"{face.__name__}: no docstring on {silent}"


def test_the_version_is_that_of_the_installed_package():
    assert importlib.metadata.version("tinsmith") == tinsmith.__version__


def _left_out(face: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(face).items()
        if not name.startswith("_") and not isinstance(value, _NO_NAMES_OF_OURS) and name not in face.__all__
    ]


def _needs_docstring(value: object) -> bool:
    return isinstance(value, ModuleType) or inspect.isclass(value) or inspect.isroutine(value)


def _own_docstring(face: ModuleType, name: str) -> str | None:
    value = getattr(face, name)
    return vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__


def test_the_checks_notice_violations():
    bad = ModuleType("bad")
    bad.__all__ = ["Silent"]
    bad.Silent = type("Silent", (ValueError,), {})
    bad.forgotten = len
    assert _left_out(bad) == ["forgotten"]
    assert _needs_docstring(bad.Silent)
    assert not _own_docstring(bad, "Silent")  # the docstring of ValueError is not its own
