"""Fixtures of the layers' tests: the library that gives Tin, EmptyTin and Tube."""

import importlib

import pytest


@pytest.fixture
def layers(request):
    """This library; `stannum` where `support.dropin.side_by_side` asks for it."""
    name = getattr(request, "param", "tinsmith")
    if name == "stannum":
        pytest.importorskip("stannum", reason="pip install 'tinsmith[peers]'")
    library = importlib.import_module(name)
    wanted = "Tube" if "tube" in request.module.__name__ else "Tin"
    if not hasattr(library, wanted):
        pytest.skip(f"{name}.{wanted} is being built")
    return library
