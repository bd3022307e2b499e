"""What pytest loads at each start where tinsmith is installed: two flags.

It stands outside the package, whose import loads torch: a test run that does not ask for `--tinsmith-check` loads
nothing but this file. `tinsmith.testing` has what the flag does.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags."""
    group = parser.getgroup("tinsmith")
    group.addoption(
        "--tinsmith-check",
        action="store_true",
        help="lint the kernels of collected .py files, and check the ops of test modules on their examples",
    )
    group.addoption(
        "--tinsmith-strict", action="store_true", help="as --tinsmith-check, and warnings fail as errors do"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest where it is asked for."""
    if config.getoption("tinsmith_check") or config.getoption("tinsmith_strict"):
        from tinsmith.testing._items import Checks

        config.pluginmanager.register(Checks(), "tinsmith-checks")
