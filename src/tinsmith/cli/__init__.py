"""The command line: `tinsmith`. Each command is a file; the work is done on the floors below."""

from .._extras import require_packages as _require_packages

_require_packages("the command line", "apps")  # before typer is imported, which would only name itself

from ._app import app  # noqa: E402

__all__ = ["app"]
