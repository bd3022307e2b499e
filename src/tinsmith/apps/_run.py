"""The run of every app: check the options, lock the folder, train on one of torch's threads, evaluate and write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch

from .._errors import InputError, refusal
from .._integers import read_integer
from ..engines import get
from ._checkpoint import FILE, Checkpoints
from ._claim import claim_folder
from ._cost import Cost, require_affordable
from ._files import require_writable
from ._interrupt import stop_on_interrupt
from ._page import Page
from ._pictures import write_files
from ._processes import ALONE, Processes, join_processes
from ._progress import Watch
from ._report import REPORT_FILES
from ._training import AnyEvaluation, AnyOutcome, Learner, Training

_MOST_NAMED = 3
"""The number of existing files that a message names."""


class RunOptions(Protocol):
    """The options that all apps have."""

    @property
    def out(self) -> Path: ...
    @property
    def engine(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def resume(self) -> bool: ...
    @property
    def overwrite(self) -> bool: ...


def require_at_least(least: int, **numbers: int) -> None:
    """Raise InputError if one of the numbers, given by name, is no integer or less than `least`."""
    for name, value in numbers.items():
        number = read_integer(value)
        if number is None or number < least:
            rows = [("got", repr(value)), ("expected", f"{least} or more")]
            raise InputError(refusal(f"`{name}` is {'not an integer' if number is None else 'too small'}", rows))


def require_runnable(options: RunOptions, cost: Cost, **numbers: object) -> None:
    """Check that this machine can run an app: that the engine and the device exist, and that the cost is affordable.

    Args:
        options: the options of the run.
        cost: the cost of the run.
        numbers: the options that the cost grows with, by name, for the message.

    Raises:
        EngineError: the engine is not available.
        InputError: torch has no such device, or the run needs too much memory or time.
    """
    if options.engine is not None:
        get(options.engine)
    if options.device not in ("cpu", "cuda") or (options.device == "cuda" and not torch.cuda.is_available()):
        raise InputError(refusal("torch has no such device", [("device", options.device)], "Use --device cpu."))
    require_affordable(cost, options.device, **numbers)


def run_training(
    options: RunOptions,
    make_learner: Callable[[Processes], Learner[AnyEvaluation, AnyOutcome]],
    checkpoints: Checkpoints,
    files: Collection[str],
    *,
    inputs: Iterable[tuple[str, Path | None]] = (),
    shares: tuple[str, int] | None = None,
    watch: Watch | None = None,
    page: Page[Any, AnyOutcome] | None = None,
) -> AnyOutcome:
    """Train the learner that `make_learner` builds, and write the results into `options.out`. Return the outcome.

    Ctrl-C ends the run after the current step; results and checkpoint are then written as they are.

    Args:
        options: the options of the run.
        make_learner: builds the learner of one of the processes that train together.
        checkpoints: the run's checkpoints.
        files: the names of the files that the learner's `writers` write. The report's files are added.
        inputs: the input files, which must not be overwritten, each with its description.
        shares: the name and size of what processes that train together split in a step; None for an app that trains in
            one process.
        watch: called at the start and after each step with the steps taken, the steps in all and the quality.
        page: a page that shows the run.

    Raises:
        InputError: the folder holds an earlier run and neither `resume` nor `overwrite` is set, a file cannot be
            written, another run uses the folder, or the batch cannot be split among the processes.
        CheckpointError: with `resume`, the checkpoint is missing, broken or of another run.
    """
    if options.resume and options.overwrite:
        raise InputError(refusal("--resume and --overwrite exclude each other", remedy="Leave out one of them."))
    files = (*files, *REPORT_FILES)
    if options.resume:
        checkpoints.load()
    for what, path in inputs:
        _require_apart(what, path, options.out, files)
    require_writable(options.out)
    _require_unused(options, (FILE, *files))
    joined = nullcontext(ALONE) if shares is None else join_processes(options.device)
    with claim_folder(options.out), joined as processes, stop_on_interrupt() as stop:
        if shares is not None:
            processes.require_shares(*shares)
        if page is not None:
            processes.require_alone(page.title)
        learner = make_learner(processes)
        training = Training(learner, processes)
        checkpoints.restore(training)
        if page is not None:
            page.begin(training, stop, options.out)
            watch = page.make_watch(watch)
        training.run(lambda: checkpoints.save(training), watch, stop)

        def write() -> AnyOutcome:
            is_changed = training.taken or learner.extra_steps or not _are_written(options.out, files)
            is_new = processes.is_first and is_changed
            # Write the checkpoint first, since only it cannot be recomputed.
            written = [checkpoints.save(training)] if is_new else []
            evaluation = learner.evaluate(training)
            if is_new:
                report = learner.make_report(training, evaluation)
                writers = {**learner.writers(training, evaluation, report), **report.writers()}
                written = [*write_files(options.out, writers), *written]
            processes.wait()
            return learner.summarize(evaluation, training.describe_run(written))

        return write() if page is None else page.finish(write)


def _require_apart(what: str, given: Path | None, out: Path, files: Collection[str]) -> None:
    """Raise InputError if an input file is one that the app would overwrite in `out`."""
    if given is None or given.resolve() not in [(out / name).resolve() for name in files]:
        return
    headline = f"the {what} would be overwritten"
    raise InputError(refusal(headline, [("file", str(given))], "Choose another folder with --out."))


def _require_unused(options: RunOptions, files: Collection[str]) -> None:
    """Raise InputError if the output folder holds files of an earlier run, unless the options say what to do."""
    if options.resume or options.overwrite:
        return
    present = [name for name in files if (options.out / name).exists()]
    if not present:
        return
    shown = ", ".join(present[:_MOST_NAMED]) + f" and {len(present) - _MOST_NAMED} more" * (len(present) > _MOST_NAMED)
    resume = "Pass --resume to continue it, " if FILE in present else "Pass "
    words = "the output folder holds an earlier run"
    remedy = f"{resume}--overwrite to replace it, or choose another folder with --out."
    raise InputError(refusal(words, [("folder", str(options.out)), ("files", shown)], remedy))


def _are_written(folder: Path, files: Collection[str]) -> bool:
    """Return True if all files exist and none is older than the checkpoint, so that they need not be written again."""
    paths = [folder / name for name in (FILE, *files)]
    if not all(path.is_file() for path in paths):
        return False
    checkpoint, *rest = (path.stat().st_mtime_ns for path in paths)
    return min(rest) >= checkpoint


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Enter a context in which torch's CPU operations run on the calling thread. An engine keeps its own threads.

    Torch's OpenMP threads spin for a while after every operation. In a loop that alternates between small torch
    operations and kernels, they take the cores from the engine's threads, and from each other at every barrier.
    Measured on 2 cores, a step of fit-image (torch's share: 0.3 ms) takes 10 ms either way on a quiet machine, but 24
    ms instead of 130 to 250 ms beside two other busy processes. The function of each app is decorated,
    since the checks before the first step take as long then.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
