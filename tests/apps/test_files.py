"""Files are whole or not there."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from safetensors import SafetensorError

from tinsmith._errors import InputError
from tinsmith.apps import _files
from tinsmith.apps._claim import claim_folder
from tinsmith.apps._interrupt import Stop, stop_on_interrupt
from tinsmith.apps._training import Learner, Training
from tinsmith.nn import write_checkpoint


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with _files.replace_when_whole(path) as beside:
        beside.write_text("whole")
        assert not path.exists() and beside.parent == tmp_path and beside.suffix == ".txt"
    assert [path.read_text()] == ["whole"] and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_keeps_the_old_file(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error):
        _fail_half_way(path, error)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def _fail_half_way(path, error):
    with _files.replace_when_whole(path) as beside:
        beside.write_text("ha")
        raise error


FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL, ids=lambda error: type(error).__name__)
def test_a_full_disk_is_reported(tmp_path, error):
    with pytest.raises(InputError) as refused, _files.replace_when_whole(tmp_path / "a.txt"):
        raise error
    assert "a.txt cannot be written" in str(refused.value) and "No space left on device" in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_written_files_are_readable_by_others(tmp_path):
    plain, path = tmp_path / "plain", tmp_path / "a.txt"
    plain.touch()
    with _files.replace_when_whole(path) as beside:
        beside.unlink()
        beside.touch(0o600)
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_writable_folder_is_made_and_left_empty(tmp_path):
    _files.require_writable(tmp_path / "a" / "b")
    assert not list((tmp_path / "a" / "b").iterdir())


@pytest.mark.parametrize("error", FULL, ids=lambda error: type(error).__name__)
def test_a_full_disk_is_reported_when_a_checkpoint_is_written(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(InputError, match=r"(?s)the checkpoint cannot be written.*No space left on device"):
        write_checkpoint(tmp_path / "a.safetensors", {"step": 7})
    assert not list(tmp_path.iterdir())


class Counter(Learner):
    """It learns nothing: the training only counts."""

    steps = 250

    def training_step(self, training):
        return 0.0

    evaluate = make_report = writers = summarize = None


def test_training_continues_if_a_checkpoint_cannot_be_written():
    training, saved = Training(Counter()), []

    def save():
        if training.step == 100:
            raise InputError("the checkpoint cannot be written")
        saved.append(training.step)

    with pytest.warns(RuntimeWarning, match=r"cannot be written\nThe training goes on to the next checkpoint"):
        training.run(save, None, Stop())
    assert training.taken == training.step == 250
    assert saved == [200]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_requests_a_stop(number):
    before = signal.getsignal(number)
    with stop_on_interrupt() as stop:
        signal.raise_signal(number)
        assert stop.is_requested and signal.getsignal(number) is before
    assert signal.getsignal(number) is before


def test_a_folder_is_claimed_by_one_run(tmp_path):
    (tmp_path / ".run.lock").write_text("of a run that was killed, longer than what this one writes, by some letters")
    for _ in range(2):
        with claim_folder(tmp_path):
            words = rf"another run writes into the output folder(?s:.*)by +process {os.getpid()} on "
            with pytest.raises(InputError, match=words), claim_folder(tmp_path):
                pass
        assert not list(tmp_path.iterdir())
