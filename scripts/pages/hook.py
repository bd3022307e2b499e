"""The hooks that mkdocs calls: they style outputs and arrows, and redirect links that leave docs/ to copies.

A page of docs/ links to files of the repository as a code host would have it (`../../tests/...`). In the site such
a file is a page of its own below repository/: Markdown as it is, other text as code, pictures as pictures.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs loads this file by its path

from pages.blocks import ROOT, as_the_site_has_it

_LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_WHOLE = re.compile(r"(?<!!)\[(?P<words>[^\]]+)\]\((?P<target>[^)#\s]+)\)")
_FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
_PICTURES = (".png", ".jpg", ".svg", ".gif")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json"}
_CHANGELOG, _CONTRIBUTING = "about/changelog.md", "CONTRIBUTING.md"
_PRIVATE_TITLE = re.compile(r' title="[^"]*\btinsmith(?:\.\w+)*\._[^"]*"')
_PREFORMATTED = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)
_INLINE_CODE = re.compile(r"<code\b[^>]*>[^<]*</code>")
_HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files, config):
    """Add the changelog, CONTRIBUTING.md, the files outside docs/ that pages link to, and those that these link to."""
    pages = [file.src_uri for file in files if file.src_uri.endswith(".md")]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, _CHANGELOG, content=changelog))
    files.append(_copy(_CONTRIBUTING, config))
    waiting = ["CHANGELOG.md", _CONTRIBUTING, *(f"docs/{page}" for page in pages)]
    while waiting:
        origin = waiting.pop()
        text = (ROOT / origin).read_text(encoding="utf-8")
        for target in {_resolved(origin, link["target"]) for link in _links(text)} - {None}:
            if target.startswith("docs/") or files.get_file_from_path(_uri(target)):
                continue
            files.append(_copy(target, config))
            if target.endswith(".md"):
                waiting.append(target)
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrite a page's Markdown for the site. Called by mkdocs."""
    uri = page.file.src_uri
    origin = uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"
    origin = "CHANGELOG.md" if uri == _CHANGELOG else origin
    if not uri.startswith("repository/"):
        markdown = as_the_site_has_it(markdown)
    page.meta.setdefault("search", {"boost": _boost(uri)})
    pieces = _FENCED.split(markdown)  # code stands at odd indices and is not rewritten
    pieces[::2] = [
        _LINK.sub(lambda link: _rewritten(link, origin, uri), _unfoldered(piece, origin)) for piece in pieces[::2]
    ]
    return "".join(pieces)


def _boost(uri: str) -> float:
    """Return a page's weight in the search: the definition of a name ranks above its uses."""
    if uri in {"reference/op.md", "how-to/autograd-function.md"}:
        return 4.0
    if uri.startswith("reference/") and not uri.startswith("reference/lint/"):
        return 2.0
    return 0.5 if uri.startswith("about/decisions/") else 1.0


def on_post_page(output, page, config):
    """Remove the private modules before types in signatures, and keep arrows whole. Called by mkdocs."""
    output = _PRIVATE_TITLE.sub("", output)  # here, since mkdocstrings resolves links after on_page_content
    pieces = _PREFORMATTED.split(output)  # blocks of code stand at odd indices; their lines never break
    pieces[::2] = [_INLINE_CODE.sub(_keep_arrows_whole, piece) for piece in pieces[::2]]
    return "".join(pieces)


def _keep_arrows_whole(code: re.Match[str]) -> str:
    """Mark each `->` of an inline code, in which a browser would break the line after the hyphen."""
    return code[0].replace("-&gt;", '<span class="arrow">-&gt;</span>')


def _links(text: str):
    return [link for piece in _FENCED.split(text)[::2] for link in _LINK.finditer(piece)]


def _unfoldered(text: str, origin: str) -> str:
    """Replace links to folders by their text, since only a code host can show folders."""

    def plain(link: re.Match[str]) -> str:
        path = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(origin), link["target"]))
        return link["words"] if path.is_dir() else link[0]

    return _WHOLE.sub(plain, text)


def _rewritten(link: re.Match[str], origin: str, uri: str) -> str:
    target = _resolved(origin, link["target"])
    if target is None:
        return link[0]
    return posixpath.relpath(_uri(target), posixpath.dirname(uri)) + (link["anchor"] or "")


def _resolved(origin: str, target: str) -> str | None:
    """Return the repository's file that a link refers to; None if it is elsewhere or missing, which mkdocs reports."""
    if re.match(r"\w+:", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    return path if (ROOT / path).is_file() else None


def _uri(target: str) -> str:
    """Return the path of a repository's file in the site's sources."""
    if target == "CHANGELOG.md":
        return _CHANGELOG
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"repository/{target}" if target.endswith((".md", *_PICTURES)) else f"repository/{target}.md"


def _copy(target: str, config) -> File:
    if target.endswith(_PICTURES):
        return File.generated(config, _uri(target), abs_src_path=str(ROOT / target))
    text = (ROOT / target).read_text(encoding="utf-8")
    if not target.endswith(".md"):
        language = _LANGUAGES.get(Path(target).suffix, "text")
        text = f"# `{target}`\n\n````{language}\n{text}\n````\n"
    return File.generated(config, _uri(target), content=_HIDDEN + text)
