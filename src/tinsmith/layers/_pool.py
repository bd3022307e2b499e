"""Memory that layers own on an engine's side: gradient fields.

The only file of this folder that touches `.grad`.
"""

from __future__ import annotations

from typing import Any


def gradient_field(field: Any) -> Any:
    """The field that an engine adds a field's gradient to."""
    return field.grad
