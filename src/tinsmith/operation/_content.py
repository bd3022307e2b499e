"""Content: a digest of everything that an op's compiled forms depend on.

Torch keeps compiled and exported graphs by their text. An op's operators are named by this digest, so that an edited
kernel is another operator, and the same kernel is the same one in another process.

Values that change from call to call are not part of it: globals and attributes are read at each call. Kernels of one
text differ in variables of a closure, and in attributes of the object that a method is bound to: those are part of it,
as they are when the op is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata

from .._version import __version__
from ..calls import Signature
from ..compiling import Stage, digest_of
from ._options import OpOptions

_CALLING_CONVENTION = "2"
"""Raised where operators change what they take besides an op's arguments: torch keeps compiled calls on disk."""


def content_of(signature: Signature, options: OpOptions, backward: Stage | None) -> str:
    """The digest of an op.

    Args:
        signature: what it takes and gives, and its kernels.
        options: what it is made with.
        backward: the hand-written gradient kernel.
    """
    spec = signature.spec
    parts = [
        __version__,
        _CALLING_CONVENTION,
        spec.text,
        spec.scratch_text,
        *signature.order,
        repr(sorted(signature.init.items())),
    ]
    parts += [
        repr(sorted(signature.detached)),
        repr((options.adjoint, options.trust_engine, options.half, options.deterministic, options.races)),
    ]
    firsts: dict[Stage, int] = {}
    for stage in (*signature.stages, *([] if backward is None else [backward])):
        parts.append(f"{firsts.setdefault(stage.first, len(firsts))} {sorted(stage.scalar_names.items())}")
    for stage in firsts:
        parts += _parts_of(stage)
    return digest_of(*parts)


def _parts_of(stage: Stage) -> Iterator[str]:
    """What a kernel's compiled forms depend on, whatever its launches call its arguments."""
    yield f"{stage.engine.name} {_version(stage.home.name)} {stage.home.name}"
    yield f"{stage.is_simd} {stage.is_checked} {stage.allows_races} {stage.baked_values.has_state}"
    yield repr([(one.name, one.kind, one.text, one.element) for one in stage.parameters.values()])
    for source in stage.baked_values.sources:
        yield source.content
    yield stage.baked_values.describe_captured()


@lru_cache
def _version(package: str) -> str:
    return metadata.version(package)
