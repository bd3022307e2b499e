"""Files are whole or not there."""

from __future__ import annotations

import errno

import pytest

from tinsmith._errors import InputError
from tinsmith.apps import _files


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with _files.replace_when_whole(path) as beside:
        beside.write_text("whole")
        assert not path.exists() and beside.parent == tmp_path and beside.suffix == ".txt"
    assert [path.read_text()] == ["whole"] and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_file_that_failed_leaves_the_old_one(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error):
        _fail_half_way(path, error)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def _fail_half_way(path, error):
    with _files.replace_when_whole(path) as beside:
        beside.write_text("ha")
        raise error


def test_a_full_disk_is_told_in_words(tmp_path):
    with pytest.raises(InputError) as refused, _files.replace_when_whole(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "a.txt cannot be written" in str(refused.value) and "No space left on device" in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_others_may_read_what_was_written(tmp_path):
    plain, path = tmp_path / "plain", tmp_path / "a.txt"
    plain.touch()
    with _files.replace_when_whole(path) as beside:
        beside.unlink()
        beside.touch(0o600)
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_writable_folder_is_made_and_left_empty(tmp_path):
    _files.require_writable(tmp_path / "a" / "b")
    assert not list((tmp_path / "a" / "b").iterdir())
