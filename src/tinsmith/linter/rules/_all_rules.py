"""Every rule, in the order in which they are asked."""

from collections.abc import Callable, Iterator

from .._finding import Finding
from .._subject import Subject
from . import _accesses, _engines, _hygiene, _inner_loops, _memory, _numbers

Rule = Callable[[Subject], Iterator[Finding]]
"""Looks at a kernel, and says what it finds."""

OUTSIDE: Rule = _accesses.find_indices_outside
RACES: Rule = _accesses.find_races
"""For errors of these two an op is refused when it is made."""
RULES: tuple[Rule, ...] = (
    _memory.find_overwritten_reads,
    _memory.inputs_written,
    _memory.read_too_early,
    _accesses.find_races,
    _accesses.find_indices_outside,
    _memory.state_of_the_outermost_loop,
    _memory.find_overwritten_conditions,
    _engines.mixed_top_level,
    _engines.early_ends,
    _engines.deep_loops,
    _engines.changed_variables,
    _numbers.find_truncated_values,
    _numbers.through_integers,
    _numbers.singular,
    _numbers.half_sums,
    _numbers.narrow_literals,
    _numbers.known_divisions,
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
    _inner_loops.lost_iterations,
    _hygiene.unused_parameters,
    _hygiene.hidden_globals,
    _hygiene.dropped_arithmetic,
    _hygiene.not_followed,
)
