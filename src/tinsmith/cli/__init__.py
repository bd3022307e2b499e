"""The command line: `tinsmith`. Each command is a file; the work is done on the floors below."""

from ._app import app

__all__ = ["app"]
