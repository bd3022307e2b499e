"""Fixtures of the layers' tests: the library that gives Tin, EmptyTin and Tube."""

import importlib

import pytest
import setuptools  # noqa: F401 - before Quadrants, as tests/bridge/test_contract_compile.py says


@pytest.fixture
def layers(request):
    """Return this library, or `stannum` where `support.dropin.side_by_side` asks for it."""
    name = getattr(request, "param", "tinsmith")
    if name == "stannum":
        pytest.importorskip("stannum", reason='pip install ".[test]"')
    return importlib.import_module(name)
