"""Give a rewritten kernel back to Python: text, a synthetic file, a function."""

from __future__ import annotations

import ast
import hashlib
import linecache
from collections.abc import Callable
from typing import Any


def build(tree: ast.FunctionDef, namespace: dict[str, Any], label: str) -> tuple[Callable[..., Any], str]:
    """A function made from `tree`, and its text.

    The text is registered in `linecache` under a synthetic file name, because engines ask
    `inspect` for the source of what they compile. The name depends on the text alone, so
    that an engine's offline cache, which may key on it, finds the kernel in the next process.
    """
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = f"<tinsmith {label} {digest}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    scope = dict(namespace)
    exec(compile(text, path, "exec", dont_inherit=True), scope)  # annotations are values to an engine: no __future__
    return scope[tree.name], text
