"""The compiler writes for each kernel of the store what it wrote when the store was made."""

import pytest

from golden._kernels import list_entries
from golden._store import digest_texts, load_digests

ENTRIES = list_entries()
SINGLE = [name for name, entry in ENTRIES.items() if entry.default_fp == "f32"]
DOUBLE = [name for name, entry in ENTRIES.items() if entry.default_fp == "f64"]
DIGESTS = load_digests()


def check(name, engine, lang):
    digests = digest_texts(ENTRIES[name].use(lang))
    stored = DIGESTS[engine][name]
    changed = [way for way in digests.keys() | stored.keys() if digests.get(way) != stored.get(way)]
    assert not changed, (
        f"what is generated for {name} on {engine} is not what is stored: {', '.join(sorted(changed))}. "
        "`./scripts/golden diff COMMIT` shows the texts, and `./scripts/golden write` accepts them."
    )


@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", SINGLE)
def test_a_kernel(name, engine, lang):
    check(name, engine, lang)


@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", DOUBLE)
def test_a_kernel_of_doubles(name, engine, lang64):
    check(name, engine, lang64)


@pytest.mark.compiled_engine
@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", SINGLE)
def test_a_kernel_that_is_on_disk(name, engine, lang, disk_cache):
    for _ in range(2):
        check(name, engine, lang)


def test_the_store_has_each_kernel():
    assert len(ENTRIES) >= 400
    for engine, digests in DIGESTS.items():
        assert digests.keys() == ENTRIES.keys(), f"run ./scripts/golden write: {engine} has other kernels"
