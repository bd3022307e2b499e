"""Launch contexts that are used again: one for each thread that launches at once."""

import sys
from types import SimpleNamespace

import pytest

from tinsmith.engines import _common


class Launches:
    """An engine's program of no device; a launch may be made to fail."""

    fails = False

    def launch_kernel(self, data, context):
        if self.fails:
            raise RuntimeError("no memory")


def make_launch():
    """Make a launch, the program that it runs on, and a list of the contexts that are created for it."""
    made, program = [], Launches()

    def make_context():
        made.append(SimpleNamespace(set_arg_external_array_with_shape=lambda *array: None))
        return made[-1]

    cpp = SimpleNamespace(make_launch_context=make_context)
    return _common.make_launcher(cpp, program, None), program, made


def test_a_context_is_used_again_unless_its_launch_failed():
    launch, program, made = make_launch()
    for _ in range(3):
        launch([])
    assert len(made) == 1
    program.fails = True
    for count in (1, 2):
        with pytest.raises(RuntimeError):
            launch([])
        assert len(made) == count
    program.fails = False
    launch([])
    assert len(made) == 3


def test_another_thread_may_take_the_last_context_at_any_moment():
    """Between any two instructions of a launch, as the interpreter switches threads, the only free context goes."""
    moments = 0
    while True:
        launch, program, _ = make_launch()
        launch([])
        left = moments

        def take(frame, event, _, launch=launch, program=program):
            nonlocal left
            frame.f_trace_opcodes = True
            if event == "opcode" and frame.f_code is launch.__code__:
                left -= 1
                if left == 0:
                    program.fails = True  # a context whose launch fails does not come back
                    try:
                        launch([])
                    except RuntimeError:
                        program.fails = False
            return take

        before = sys.gettrace()
        sys.settrace(take)
        try:
            launch([])
        finally:
            sys.settrace(before)
        if left > 0:  # the launch has no more instructions than that
            break
        moments += 1
    assert moments > 10
