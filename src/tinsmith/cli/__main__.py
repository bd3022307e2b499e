"""`python -m tinsmith.cli`: the command line where its script is not on the PATH."""

from ._app import app

app(prog_name="tinsmith")
