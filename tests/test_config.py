"""Settings come from the environment once, and a misspelt one is never silently the default."""

import dataclasses

import pytest

from tinsmith._config import Config, config, read_config
from tinsmith._errors import ConfigError

READ = [
    ({}, Config(serial_below=None, poison=False, plan_cache=1024)),
    ({"PATH": "/usr/bin", "tinsmith_poison": "?"}, Config()),
    ({"TINSMITH_SERIAL_BELOW": "0"}, Config(serial_below=0)),
    ({"TINSMITH_SERIAL_BELOW": " 1_000 "}, Config(serial_below=1000)),
    ({"TINSMITH_POISON": "1", "TINSMITH_PLAN_CACHE": "7"}, Config(poison=True, plan_cache=7)),
    *[({"TINSMITH_POISON": text}, Config(poison=True)) for text in ("true", "On", "YES", " 1")],
    *[({"TINSMITH_POISON": text}, Config(poison=False)) for text in ("false", "Off", "NO", "0")],
]


@pytest.mark.parametrize(("environ", "wanted"), READ)
def test_settings_are_read(environ, wanted):
    assert read_config(environ) == wanted


KNOWN = [
    "  TINSMITH_SERIAL_BELOW        operations; 0 for never (default unset)",
    "  TINSMITH_TAPE_LIMIT          bytes; 0 for checkpoints always (default 134217728)",
    "  TINSMITH_POISON              0 or 1 (default 0)",
    "  TINSMITH_CHECK_BOUNDS        0 or 1 (default 0)",
    "  TINSMITH_ENGINE              python, for debugging (default unset)",
    "  TINSMITH_RAISE_ON_NAN        0 or 1, on the Python engine (default 0)",
    "  TINSMITH_RAISE_ON_UNWRITTEN  0 or 1, on the Python engine (default 0)",
    "  TINSMITH_TRACEBACK           short or full (default short)",
    "  TINSMITH_VERIFY              0 or 1, for developers (default 0)",
    "  TINSMITH_CACHE               0 keeps nothing on disk (default 1)",
    "  TINSMITH_PLAN_CACHE          plans kept by an op (default 1024)",
]
REFUSED = {
    "near a setting": (
        {"TINSMITH_SERIAL_BELLOW": "1"},
        [
            "The environment sets TINSMITH_SERIAL_BELLOW, which is not a setting of tinsmith",
            *KNOWN,
            "Did you mean TINSMITH_SERIAL_BELOW?",
        ],
    ),
    "near none": (
        {"TINSMITH_HOME": "/tmp"},
        [
            "The environment sets TINSMITH_HOME, which is not a setting of tinsmith",
            *KNOWN,
            "Unset TINSMITH_HOME: names that begin with TINSMITH_ are reserved for tinsmith.",
        ],
    ),
    "a boolean that is none": (
        {"TINSMITH_POISON": "maybe"},
        [
            "TINSMITH_POISON='maybe' is not yes or no",
            "  TINSMITH_POISON  0 or 1 (default 0)",
            "Write TINSMITH_POISON=1 or TINSMITH_POISON=0.",
        ],
    ),
    "a number that is none": (
        {"TINSMITH_SERIAL_BELOW": "64k"},
        [
            "TINSMITH_SERIAL_BELOW='64k' is not a whole number",
            "  TINSMITH_SERIAL_BELOW  operations; 0 for never (default unset)",
            "Write for example TINSMITH_SERIAL_BELOW=262144.",
        ],
    ),
    "an empty number": (
        {"TINSMITH_PLAN_CACHE": ""},
        [
            "TINSMITH_PLAN_CACHE='' is not a whole number",
            "  TINSMITH_PLAN_CACHE  plans kept by an op (default 1024)",
            "Write for example TINSMITH_PLAN_CACHE=1024, the default.",
        ],
    ),
    "a number too small": (
        {"TINSMITH_PLAN_CACHE": "0"},
        [
            "TINSMITH_PLAN_CACHE='0' is too small",
            "  TINSMITH_PLAN_CACHE  plans kept by an op (default 1024)",
            "Write 1 or more; the default is 1024.",
        ],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_settings_are_refused(case):
    environ, message = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        read_config(environ)
    assert str(caught.value).split("\n") == message


def test_the_environment_is_read_once_until_reloaded(monkeypatch):
    config.cache_clear()
    before = config()
    monkeypatch.setenv("TINSMITH_PLAN_CACHE", str(before.plan_cache + 1))
    assert config() is before
    config.cache_clear()
    assert config().plan_cache == before.plan_cache + 1
    monkeypatch.undo()
    config.cache_clear()


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().poison = True  # type: ignore[misc]
