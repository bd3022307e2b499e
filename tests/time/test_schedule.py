"""Schedules: they reverse every step once, from the state before it, with the fewest steps run again."""

from functools import cache

import pytest

from tinsmith.time._schedule import Advance, Keep, Restore, Reverse, Schedule


@cache
def fewest(count, states):
    """Find by exhaustive search the fewest steps that reverse `count` steps with so many states."""
    if count < 2:
        return 0
    if states == 1:
        return count * (count - 1) // 2
    return min(m + fewest(count - m, states - 1) + fewest(m, states) for m in range(1, count))


def reversed_steps(schedule):
    """Run a schedule on positions in place of states."""
    slots, present, positions = list(schedule.stored_positions), None, []
    for action in schedule.reversal():
        match action:
            case Restore(slot):
                del slots[slot + 1 :]
                present = slots[slot]
            case Advance(start, end):
                assert present == start < end
                present = end
            case Keep(slot):
                assert len(slots) == slot
                slots.append(present)
            case Reverse(position):
                assert present == position
                positions.append(position)
    return positions


SCHEDULES = [
    *(Schedule(length, slots=slots) for length in (0, 1, 2, 3, 7, 20, 64) for slots in (0, 1, 2, 5, 80)),
    *(Schedule(length, every=every) for length in (0, 1, 2, 7, 20) for every in (1, 3, 7, 30)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_every_step_is_reversed_from_the_state_before_it(schedule):
    assert reversed_steps(schedule) == list(reversed(range(schedule.length)))
    assert schedule.counts.most_states <= schedule.capacity


@pytest.mark.parametrize("states", range(1, 8))
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13, 21, 40])
def test_no_schedule_runs_fewer_steps(length, states):
    schedule = Schedule(length, slots=states - 1)
    assert schedule.stored_positions[-1] + schedule.counts.again == fewest(length, states)


def test_ten_thousand_steps_with_a_hundred_states_are_two_and_a_half_forward_passes():
    schedule = Schedule(10_000, slots=100)
    assert schedule.counts.most_states == 100
    assert 10_000 + schedule.counts.again <= 2.5 * 10_000


def test_every_kth_state_is_kept_and_the_others_are_found_once():
    schedule = Schedule(20, every=6)
    assert schedule.stored_positions == (0, 6, 12, 18)
    assert schedule.counts.again == 20 - 4
