"""`python -m tinsmith`: the command line where its script is not on the PATH."""

from .cli import app

app(prog_name="tinsmith")
