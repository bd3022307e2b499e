"""The pytest plugin, which adds two flags where tinsmith is installed.

It is outside the package, whose import loads torch: a test run without `--tinsmith-check` imports only this file.
`tinsmith.testing` implements the flag.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's two flags."""
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
    """Import and register the checks if one of the flags is set."""
    if config.getoption("tinsmith_check") or config.getoption("tinsmith_strict"):
        from tinsmith.testing._items import Checks

        config.pluginmanager.register(Checks(), "tinsmith-checks")
