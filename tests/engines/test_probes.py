"""What we lean on in the engines' private parts: a release that changes it must fail here, by name."""

import dataclasses

import pytest

from tinsmith import engines


def test_all_probes_of_engines_hold(lang):
    broken = [f"{probe.package}: {probe.name}: {probe.detail}" for probe in engines.run_probes() if not probe.ok]
    assert not broken, "an engine's release changed what tinsmith leans on:\n" + "\n".join(broken)


def test_a_started_engine_is_run(lang, engine):
    behavior = [probe for probe in engines.run_probes() if probe.package == engine and "reverse kernel" in probe.name]
    assert len(behavior) == 3


@pytest.mark.parametrize("path", ["kernel._primal.no_such_name", "impl.no_such_name"])
def test_a_missing_name_is_reported(lang, engine, monkeypatch, path):
    adapter = engines.get(engine)
    facts = adapter.facts()
    lost = dataclasses.replace(facts, paths=(*facts.paths, path))
    monkeypatch.setattr(type(adapter), "facts", lambda self: lost if self.name == engine else facts)
    broken = [probe for probe in engines.run_probes() if not probe.ok and probe.package == engine]
    assert [probe.name for probe in broken] == [path]
    assert "`no_such_name` is gone" in broken[0].detail and f"_{engine}.py" in broken[0].detail
