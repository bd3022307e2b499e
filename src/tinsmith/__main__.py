"""The command `tinsmith`; use `python -m tinsmith` if it is not on the PATH."""

import sys

from ._errors import ConfigError
from ._output import finish_output, keep_writing


def main() -> None:
    """Run the command line. If a package that it needs is missing, print which to install, and exit with 2."""
    keep_writing()
    try:
        from .cli import app
    except ConfigError as error:
        sys.exit(_print_error(error))
    try:
        app(prog_name="tinsmith")
    except SystemExit as end:
        sys.exit(end.code or finish_output())


def _print_error(error: ConfigError) -> int:
    sys.stderr.write(f"tinsmith: {error}\n")
    return 2  # the exit code of all errors


if __name__ == "__main__":
    main()
