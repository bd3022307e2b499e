"""Every rule, in the order in which they are asked."""

from collections.abc import Callable, Iterator

from .._finding import Finding
from .._subject import Subject
from . import (
    _control,
    _divisions,
    _engines,
    _hidden,
    _hygiene,
    _lost,
    _memory,
    _numbers,
    _outside,
    _shared_locals,
    _unkept,
)

Rule = Callable[[Subject], Iterator[Finding]]
"""Looks at a kernel, and says what it finds."""

RULES: tuple[Rule, ...] = (
    _memory.find_overwritten_reads,
    _memory.inputs_written,
    _memory.read_too_early,
    _memory.races,
    _shared_locals.racing_locals,
    _outside.outside,
    _memory.state_of_the_outermost_loop,
    _memory.find_overwritten_conditions,
    _control.mixed_top_level,
    _control.early_ends,
    _control.deep_loops,
    _numbers.find_truncated_values,
    _numbers.through_integers,
    _numbers.singular,
    _numbers.half_sums,
    _numbers.narrow_literals,
    _divisions.known_divisions,
    _engines.atomics,
    _engines.randoms,
    _unkept.results,
    _unkept.operands,
    _unkept.decisions,
    _engines.carried_vectors,
    _engines.without_rule,
    _engines.find_returned_values,
    _engines.baked_in,
    _engines.scalars,
    _lost.lost_iterations,
    _hygiene.unused_parameters,
    _hidden.hidden_globals,
    _hidden.dropped_arithmetic,
    _hygiene.not_followed,
)
