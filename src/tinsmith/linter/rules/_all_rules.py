"""Every rule, in the order in which they are asked."""

from collections.abc import Callable, Iterator

from .._finding import Finding
from .._subject import Subject
from . import (
    _control,
    _divisions,
    _engines,
    _hygiene,
    _index_bounds,
    _inner_loops,
    _lost_iterations,
    _memory,
    _numbers,
    _races,
    _slips,
)

Rule = Callable[[Subject], Iterator[Finding]]
"""Looks at a kernel, and says what it finds."""

OUTSIDE: Rule = _index_bounds.outside
RACES: Rule = _races.find_races
"""For errors of these two an op is refused when it is made."""
RULES: tuple[Rule, ...] = (
    _memory.find_overwritten_reads,
    _memory.inputs_written,
    _memory.read_too_early,
    _races.find_races,
    _index_bounds.outside,
    _memory.state_of_the_outermost_loop,
    _memory.find_overwritten_conditions,
    _control.mixed_top_level,
    _control.early_ends,
    _control.deep_loops,
    _control.changed_variables,
    _numbers.find_truncated_values,
    _numbers.through_integers,
    _numbers.singular,
    _numbers.half_sums,
    _numbers.narrow_literals,
    _divisions.known_divisions,
    _engines.atomics,
    _engines.randoms,
    _inner_loops.results,
    _inner_loops.operands,
    _inner_loops.decisions,
    _engines.carried_vectors,
    _engines.without_rule,
    _engines.find_returned_values,
    _engines.baked_in,
    _engines.scalars,
    _lost_iterations.lost_iterations,
    _hygiene.unused_parameters,
    _slips.hidden_globals,
    _slips.dropped_arithmetic,
    _hygiene.not_followed,
)
