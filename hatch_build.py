"""What the build adds to pyproject.toml: addresses, and a README whose links work on a package index.

In the repository README links to its files by relative paths, which a code host shows for any fork and branch. A
package index knows no such files, so the built README names each by its address at the tag of the version. Its link to
the notebook opens Colab, and `<address>` in its clone command becomes the public address.
The public address is written once, in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<before>!?\]\(|src(?:set)?=\")(?P<target>[^)#\"\s]+)(?P<after>[)#\"])")
_GITHUB, _COLAB = "https://github.com/", "https://colab.research.google.com/github/"
_PICTURES = (".gif", ".jpg", ".png", ".svg")


class Hook(MetadataHookInterface):
    """Fills in the dynamic fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the fields of [project]; hatchling calls this."""
        root, repository = Path(self.root), self.config["repository"]
        version = re.search(r'"([^"]+)"', (root / "src/tinsmith/_version.py").read_text("utf-8").splitlines()[-1])[1]
        text = make_links_absolute((root / "README.md").read_text("utf-8"), root, repository, f"v{version}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls_of(repository)


def urls_of(repository: str) -> dict[str, str]:
    """Links that an index shows beside the project."""
    return {
        "Repository": repository,
        "Documentation": f"{repository}/tree/main/docs",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def make_links_absolute(text: str, root: Path, repository: str, revision: str) -> str:
    """Return the README with an address in place of each link to the repository's files, and of `<address>`.

    Raises:
        FileNotFoundError: a link leads nowhere.
    """

    def address_of(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z]+:", target):
            return link[0]
        path = root / target
        if not path.exists():
            raise FileNotFoundError(f"README.md links to {target}, which does not exist")
        if target.endswith(".ipynb") and repository.startswith(_GITHUB):
            opened = f"{_COLAB}{repository.removeprefix(_GITHUB)}/blob/{revision}/{target}"
            return f"{link['before']}{opened}{link['after']}"
        kind = "raw" if target.endswith(_PICTURES) else "tree" if path.is_dir() else "blob"
        return f"{link['before']}{repository}/{kind}/{revision}/{target}{link['after']}"

    return _LINK.sub(address_of, text.replace("<address>", repository))
