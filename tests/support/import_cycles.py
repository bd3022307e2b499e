"""Cycles among the modules of the package: files that cannot be read, tested or moved without each other.

Every import counts, at the top of a file, in a function or for types alone. Nothing is imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from support.floors import PACKAGE, find_file, list_imports


def find_import_cycles(sources: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of files that import each other, directly or through others.

    Args:
        sources: the texts of the files, by their paths relative to the package.
    """
    graph: dict[str, set[str]] = {}
    for path, source in sources.items():
        names = {item.target for item in list_imports(path, ast.parse(source))}
        files = {find_file(name, sources) for name in names if name.partition(".")[0] == PACKAGE}
        graph[path] = {file for file in files if file is not None}
    reached = {path: _reach(graph, path) for path in graph}
    cycles = {frozenset(other for other in reached[path] if path in reached[other]) for path in graph}
    return sorted(sorted(cycle) for cycle in cycles if cycle)


def _reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the files that a file imports, directly or through others; itself if it is in a cycle."""
    reached, waiting = set[str](), list(graph[start])
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += graph[path]
    return reached
