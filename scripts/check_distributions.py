"""Check what `./scripts/release` built: metadata, files, and whether a package index can render the README.

python check_distributions.py FOLDER CHECKOUT   one line for each fault; exit code 1 if there is any
python check_distributions.py --example WHEEL   prints the first program of the README that the wheel carries
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

NEEDED_IN_SDIST = ("LICENSE", "README.md", "CITATION.cff", "SECURITY.md", "hatch_build.py", "tests/conftest.py")


def metadata_of(wheel: Path) -> Message:
    """Read the METADATA of a wheel. Its payload is the README."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def readme_of(metadata: Message) -> str:
    """Return the README in a wheel's metadata, as the package index gets it."""
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


def first_example(readme: str) -> str:
    """Return the first Python program in the README."""
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]


def faults_of_readme(readme: str, html: str | None) -> list[str]:
    """Return what a package index could not show: relative links, and content that is missing in `html`, its
    rendering.
    """
    links = re.findall(r"\]\(([^)\s]+)\)", readme) + re.findall(r'(?:src|srcset|href)="([^"]+)"', readme)
    faults = [f"README: not an address: {link}" for link in links if not link.startswith(("https://", "#"))]
    if html is None:
        return [*faults, "README: the index's renderer refuses it"]
    wanted = {"<table": "tables", "<img": "pictures", "<pre": "programs"}
    return faults + [f"README: {name} are lost when it is rendered" for tag, name in wanted.items() if tag not in html]


def faults_of_metadata(metadata: Message) -> list[str]:
    """Return the required metadata fields that are missing, and dependencies without an upper bound."""
    wanted = ("Author", "Summary", "License-Expression", "License-File", "Requires-Python", "Keywords", "Project-URL")
    faults = [f"metadata: no {name}" for name in wanted if not metadata.get_all(name)]
    core = [one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one]
    return faults + [f"metadata: no upper bound: {one}" for one in core if "<" not in one]


def faults_of_files(wheel: list[str], sdist: list[str], checkout: Path) -> list[str]:
    """Return the files that are missing in the wheel or the sdist, and files that do not belong there."""
    package = {
        f"{one.relative_to(checkout / 'src')}".replace("\\", "/")
        for one in (checkout / "src").rglob("*")
        if one.is_file() and "__pycache__" not in one.parts and one.suffix != ".pyc"
    }
    package |= {f"tinsmith/linter/pages/{one.name}" for one in (checkout / "docs/reference/lint").glob("*.md")}
    own = {one for one in wheel if ".dist-info/" not in one}
    faults = [f"wheel: {one} is missing" for one in sorted(package - own)]
    faults += [f"wheel: {one} has no place there" for one in sorted(own - package)]
    if not any(one.endswith(".dist-info/licenses/LICENSE") for one in wheel):
        faults.append("wheel: LICENSE is missing")
    inside = {one.partition("/")[2] for one in sdist}
    faults += [f"sdist: {one} is missing" for one in NEEDED_IN_SDIST if one not in inside]
    return faults + [f"sdist: {one} has no place there" for one in sorted(inside) if "__pycache__" in one]


def faults_of(folder: Path, checkout: Path) -> list[str]:
    """Return everything that is wrong with the distributions in a folder."""
    from readme_renderer.markdown import render

    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    metadata = metadata_of(wheel)
    readme = readme_of(metadata)
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        files = faults_of_files(archive.namelist(), source.getnames(), checkout)
    return files + faults_of_metadata(metadata) + faults_of_readme(readme, render(readme))


def main(arguments: list[str]) -> int:
    """Check the distributions, or print the README's first example. Return the exit code."""
    if arguments[0] == "--example":
        print(first_example(readme_of(metadata_of(Path(arguments[1])))))
        return 0
    faults = faults_of(Path(arguments[0]), Path(arguments[1]))
    print(*(faults or ["The distributions have what they should."]), sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
