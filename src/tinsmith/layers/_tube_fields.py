"""A Tube on fields: where its kernels need what only fields can do."""

from __future__ import annotations

from ._tube_blueprint import Blueprint
from ._tube_op import Program


def field_program(blueprint: Blueprint, reason: str) -> Program:
    """How to run a Tube on fields, which it needs for `reason`."""
    raise NotImplementedError(f"{blueprint.label} needs fields, because {reason}: not supported yet")
