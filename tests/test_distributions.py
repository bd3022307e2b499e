"""What `./scripts/release` looks for in a wheel and an sdist, and what the build makes of README.

The script itself builds them and takes minutes; here its checks are given faulty distributions.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from email.message import Message
from pathlib import Path

import check_distributions as checks
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://host/owner/tinsmith"


@pytest.fixture(scope="module")
def hatch_build():
    """Import the build's hook, with a stand-in for hatchling, which is installed only during a build."""
    name = "hatchling.metadata.plugin.interface"
    stand_in = types.ModuleType(name)
    stand_in.MetadataHookInterface = object  # pyright: ignore[reportAttributeAccessIssue]
    before = sys.modules.get(name)
    sys.modules[name] = stand_in
    try:
        spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
    return module


def test_the_built_readme_has_only_absolute_links(hatch_build):
    built = hatch_build.make_links_absolute(README, ROOT, REPOSITORY, "v1.2.3")
    assert checks.faults_of_readme(built, "<table><img><pre>") == []
    assert f"]({REPOSITORY}/blob/v1.2.3/CONTRIBUTING.md)" in built
    assert f"git clone {REPOSITORY} tinsmith" in built
    relative = re.sub(r"https://host/owner/tinsmith/(blob|raw|tree)/v1.2.3/", "", built)
    assert relative.replace(f"clone {REPOSITORY}", "clone <address>") == README


LINKS = {
    "[a](LICENSE)": "[a](https://host/owner/tinsmith/blob/v1/LICENSE)",
    "[a](CONTRIBUTING.md#tests)": "[a](https://host/owner/tinsmith/blob/v1/CONTRIBUTING.md#tests)",
    "[a](examples)": "[a](https://host/owner/tinsmith/tree/v1/examples)",
    "![a](docs/assets/logo.svg)": "![a](https://host/owner/tinsmith/raw/v1/docs/assets/logo.svg)",
    '<img src="docs/assets/logo.svg" alt="">': (
        '<img src="https://host/owner/tinsmith/raw/v1/docs/assets/logo.svg" alt="">'
    ),
    '<source srcset="docs/assets/logo.svg">': (
        '<source srcset="https://host/owner/tinsmith/raw/v1/docs/assets/logo.svg">'
    ),
    "git clone <address>": "git clone https://host/owner/tinsmith",
    "[a](docs/start/taichi.ipynb)": "[a](https://host/owner/tinsmith/blob/v1/docs/start/taichi.ipynb)",
    "[a](https://pytorch.org)": "[a](https://pytorch.org)",
    "[a](#install)": "[a](#install)",
}


@pytest.mark.parametrize("link", LINKS)
def test_links(hatch_build, link):
    assert hatch_build.make_links_absolute(link, ROOT, REPOSITORY, "v1") == LINKS[link]


def test_a_notebook_on_github_opens_in_colab(hatch_build):
    built = hatch_build.make_links_absolute("[a](docs/start/taichi.ipynb)", ROOT, "https://github.com/owner/tin", "v1")
    assert built == "[a](https://colab.research.google.com/github/owner/tin/blob/v1/docs/start/taichi.ipynb)"


def test_a_link_that_leads_nowhere_stops_the_build(hatch_build):
    with pytest.raises(FileNotFoundError, match=r"README.md links to docs/gone.md"):
        hatch_build.make_links_absolute("[a](docs/gone.md)", ROOT, REPOSITORY, "v1")


def test_the_version_that_the_hook_reads(hatch_build):
    import tinsmith

    hook = hatch_build.Hook()
    hook.root, hook.config, metadata = str(ROOT), {"repository": REPOSITORY}, {}
    hook.update(metadata)
    assert f"{REPOSITORY}/blob/v{tinsmith.__version__}/" in metadata["readme"]["text"]
    assert metadata["urls"]["Issues"] == f"{REPOSITORY}/issues"


def test_the_public_address_stands_in_one_place():
    (address,) = re.findall(r'^repository = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    places = [
        *(path for path in ROOT.iterdir() if path.is_file()),
        *(path for folder in ("docs", "scripts", ".github") for path in (ROOT / folder).rglob("*")),
    ]
    texts = (path for path in places if path.suffix in {".md", ".toml", ".yml", ".yaml", ".cff", ".py", ""})
    names = {path.name for path in texts if path.is_file() and address in path.read_text("utf-8", errors="ignore")}
    assert names == {"pyproject.toml"}


def test_the_first_example_is_readme_s():
    assert checks.first_example(README).startswith("import taichi as ti, tinsmith as ts, torch\n")


def test_faults_of_a_readme():
    assert checks.faults_of_readme("[a](docs/x.md)", "<table><img><pre>") == ["README: not an address: docs/x.md"]
    assert checks.faults_of_readme("", None) == ["README: the index's renderer refuses it"]
    assert checks.faults_of_readme("", "<img><pre>") == ["README: tables are lost when it is rendered"]


def test_faults_of_metadata():
    metadata = Message()
    for name, value in {"Author": "a", "Summary": "s", "License-Expression": "l", "License-File": "f"}.items():
        metadata[name] = value
    metadata["Requires-Python"], metadata["Keywords"] = ">=3.10", "k"
    metadata["Requires-Dist"] = "torch>=2.6"
    metadata["Requires-Dist"] = "viser>=1; extra == 'view'"
    assert checks.faults_of_metadata(metadata) == [
        "metadata: no Project-URL",
        "metadata: no upper bound: torch>=2.6",
    ]


def test_faults_of_files(tmp_path):
    for name in ["tinsmith/__init__.py", "tinsmith/py.typed", "tinsmith/__pycache__/a.pyc"]:
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).touch()
    sdist = [f"tinsmith-1/{name}" for name in checks.NEEDED_IN_SDIST if name != "LICENSE"]
    assert checks.faults_of_files(["tinsmith/__init__.py", "tests/a.py"], sdist, tmp_path) == [
        "wheel: tinsmith/py.typed is missing",
        "wheel: tests/a.py has no place there",
        "wheel: LICENSE is missing",
        "sdist: LICENSE is missing",
    ]
