"""Examples in docstrings do what they say, and every public class and function has one.

Those of public names begin where docs/reference/index.md says, with `ti`, `ts` and `torch`; those of what a file keeps
to itself know its other names too.
"""

import doctest
import importlib
import inspect
import re

import pytest
import torch
from pages.blocks import ROOT

import tinsmith as ts
import tinsmith.nn
import tinsmith.render
import tinsmith.render.gaussians
import tinsmith.render.nerfacc
import tinsmith.testing
from support.engine_keeper import Configuration

BANNER = re.compile(r"^\[(?:Taichi|Quadrants)\] .*\n", re.MULTILINE)
"""What an engine prints when it starts."""

FACES = (ts, tinsmith.nn, tinsmith.render, tinsmith.render.gaussians, tinsmith.render.nerfacc, tinsmith.testing)
NAMES = {f"{face.__name__}.{name}": getattr(face, name) for face in FACES for name in face.__all__}
PUBLIC = {name: one for name, one in NAMES.items() if inspect.isclass(one) or inspect.isroutine(one)}
# A public class has the members of its bases too.
PARTS = {part for one in PUBLIC.values() for part in (one.__mro__ if inspect.isclass(one) else [one])}
PLACES = [f"{one.__module__}.{one.__qualname__}" for one in PARTS if one.__module__.startswith("tinsmith")]
ERRORS = {name for name, one in PUBLIC.items() if inspect.isclass(one) and issubclass(one, ts.TinsmithError)}
"""Which are raised, and not made: docs/reference/errors.md raises some."""

SOURCES = ROOT / "src"
FILES = [path for path in sorted(SOURCES.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


class Checker(doctest.OutputChecker):
    """Compares without banners."""

    def check_output(self, want, got, optionflags):
        return super().check_output(want, BANNER.sub("", got), optionflags)


@pytest.mark.parametrize(
    "name", sorted(name for name in set(PUBLIC) - ERRORS if not hasattr(PUBLIC[name], "__deprecated__"))
)
def test_a_public_name_has_an_example(name):
    assert ">>> " in (PUBLIC[name].__doc__ or "")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCES / "tinsmith").as_posix())
def test_examples_do_what_they_say(path, engine_keeper, monkeypatch, tmp_path):
    import taichi as ti

    engine_keeper.ensure("taichi", Configuration(arch="cpu", default_fp="f32"))
    monkeypatch.chdir(tmp_path)
    given = {"ti": ti, "ts": ts, "torch": torch}
    module = importlib.import_module(".".join(path.relative_to(SOURCES).with_suffix("").parts))
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert tests, "none of its prompts is in a docstring"
    for test in tests:
        is_public = any(f"{test.name}.".startswith(f"{place}.") for place in PLACES)
        test.globs = dict(given) if is_public else {**given, **vars(module)}
        said: list[str] = []
        doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS).run(test, out=said.append)
        assert not said, "".join(said)
