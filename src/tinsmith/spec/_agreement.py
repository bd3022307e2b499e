"""Rules between the items of a spec that do not depend on sizes.

Each rule is a function that yields its complaints, (item, headline, remedy). The first complaint of the first rule is
raised, with a caret under the item. Mistakes inside one item were found when it was parsed, in `_parse`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .._errors import SpecError, point_at, refusal
from ._dims import Fixed, Item, Spec

_Complaints: TypeAlias = Iterator[tuple[Item, str, str]]


def check_agreement(spec: Spec) -> None:
    """Raise SpecError for the first item of a spec that does not agree with the others."""
    for rule in _RULES:
        for item, headline, remedy in rule(spec):
            text = spec.scratch_text if any(item is one for one in spec.scratch) else spec.text
            raise SpecError(refusal(headline, point_at(text, item.column), remedy))


def _names_are_unique(spec: Spec) -> _Complaints:
    seen: dict[str, str] = {}
    for side, items in (("an input", spec.inputs), ("an output", spec.outputs), ("scratch", spec.scratch)):
        for item in items:
            if item.name not in seen:
                seen[item.name] = side
            elif seen[item.name] == side:
                yield item, f"`{item.written_name}` is listed twice", "Write each parameter of the kernel once."
            else:
                remedy = "Give the kernel a parameter of its own for what it writes: an op never changes its inputs."
                if side == "an output":
                    remedy = f"{remedy} To update the caller's tensor in place, write `inout {item}` left of `->` only."
                if side == "scratch" and seen[item.name] == "an output":
                    remedy = "List it as an output only: outputs, too, begin at zero."
                yield item, f"`{item.name}` is {seen[item.name]} already and cannot be {side} too", remedy


def _one_batch_name(spec: Spec) -> _Complaints:
    for item in spec.items:
        if item.batch_name not in (None, spec.batch_name):
            headline = f"`*{item.batch_name}` is a second batch: `*{spec.batch_name}` is one already"
            yield item, headline, f"Write `*{spec.batch_name}` in every item: one launch runs one batch."


def _batch_is_not_a_dim(spec: Spec) -> _Complaints:
    name = spec.batch_name
    for item in spec.items:
        if name in item.names:
            headline = f"`{item.name}` uses `{name}` as a dim, but `*{name}` is the batch"
            yield item, headline, f"Give the dim another name: `*{name}` stands for any number of dims."


def _batch_reaches_everything_made(spec: Spec) -> _Complaints:
    batch = f"*{spec.batch_name}"
    from_inputs = any(item.batch_name for item in spec.inputs)
    for item in (*spec.allocations, *spec.updated_inputs):
        if from_inputs and not item.batch_name:
            better = item.name + str([batch, *map(str, item.dims)]).replace("'", "")
            yield (
                item,
                f"`{item.name}` has no `{batch}`, but an input has",
                f"Write `{better}`: each run fills its own.",
            )
        if item.batch_name and not from_inputs:
            yield item, f"No input says what `{batch}` is", f"Begin an input with `{batch}`, or leave it out here."


def _rest_comes_from_inputs(spec: Spec) -> _Complaints:
    from_inputs = any(item.has_rest for item in spec.inputs)
    for item in spec.allocations:
        if item.has_rest and not from_inputs:
            yield item, "No input says what `...` is", "Write `...` in an input too, or name the dims here."


def _batch_and_rest_are_distinguishable(spec: Spec) -> _Complaints:
    both = [item for item in spec.inputs if item.batch_name and item.has_rest]
    either = any(bool(item.batch_name) != item.has_rest for item in spec.inputs)
    for item in both if not either else ():
        headline = f"Nothing says where `*{item.batch_name}` ends and `...` begins in `{item.name}`"
        yield item, headline, "Write one of them alone in another input, or names instead of `...`."


def _free_dims_are_not_tensors(spec: Spec) -> _Complaints:
    for item in spec.items:
        if item.name in spec.free_dims:
            headline = f"`{item.name}` is a tensor, and no input has a dim of this name to size the outputs"
            yield item, headline, "Leave it out of the spec if it is an integer; give the dim another name if not."


def _promises_are_of_whole_numbers(spec: Spec) -> _Complaints:
    for item in spec.inputs:
        if item.promise and (item.dtype or "i32")[0] not in "iu":
            headline = f"`{item.name}` is `{item.promise}`, but its dtype is {item.dtype}"
            yield (
                item,
                headline,
                "Write an integer dtype, such as `i32`: a promise says which elements of other arrays are used.",
            )


def _segments_have_two_numbers(spec: Spec) -> _Complaints:
    for item in spec.inputs:
        if item.promise in ("segments", "ranges") and item.dims[-1:] != (Fixed(2),):
            second = "a count" if item.promise == "segments" else "the place behind its end"
            headline = f"`{item.name}` is `{item.promise}`, but its last dim is not 2"
            yield item, headline, f"Write `{item.promise} {item.name}[r, 2]`: each row is a start and {second}."


def _offsets_have_one_dim(spec: Spec) -> _Complaints:
    for item in spec.inputs:
        if item.promise == "offsets" and len(item.dims) - (item.batch_name is not None) != 1:
            headline = f"`{item.name}` is `offsets`, but does not have exactly one dim"
            yield item, headline, f"Write `offsets {item.name}[r]`: a segment goes from one number to the next."


def _unique_numbers_have_a_dim(spec: Spec) -> _Complaints:
    for item in spec.inputs:
        if item.promise == "unique" and not item.dims:
            yield item, f"`{item.name}` is `unique`, but has no dim: it is a single number", "Leave out `unique`."


_RULES = (
    _names_are_unique,
    _one_batch_name,
    _batch_is_not_a_dim,
    _batch_reaches_everything_made,
    _rest_comes_from_inputs,
    _batch_and_rest_are_distinguishable,
    _free_dims_are_not_tensors,
    _promises_are_of_whole_numbers,
    _segments_have_two_numbers,
    _offsets_have_one_dim,
    _unique_numbers_have_a_dim,
)
