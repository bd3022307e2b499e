"""Stopped gradients: `ti.stop_grad(x)` makes what its block loads of `x` a constant to the gradient.

    ti.stop_grad(x)
    y[i] = x[i] * w[i]     ->     y[i] = straight_through(x[i], 0.0) * w[i]

Both engines mean the whole block that the call stands in, statements before it and blocks inside it too. What the block
stores to `x` keeps its gradient.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir import Misfit, Operator, nodes, types, walk


def stop_gradients(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> nodes.Block:
    """Return statements that load the same values of arrays, without a derivative.

    Raises:
        Misfit: an atomic reads what another derivative than that of a sum would go through.
    """
    if not arrays:
        return tuple(body)
    # Each call of an atomic has a local for its result, used or not.
    used = walk.find_read(body)

    def change(part: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        match part:
            case nodes.Load(array=name) if name in arrays and types.is_float(part.type):
                return without_derivative(part)
            # The atomic itself reads the element: there is no load to replace, and only a sum has no use for one.
            case nodes.Atomic(operator, array=name) if name in arrays and (
                part.result in used or operator not in ("add", "sub")
            ):
                words = f"`stop_grad` of `{name}`, to which an `atomic_{operator}` is applied"
                words += " whose result is used" if part.result in used else ""
                raise Misfit(words, "Do the atomic outside of the block of `stop_grad`")
        return part

    return walk.change_parts(body, change)


def without_derivative(value: nodes.Expr) -> nodes.Expr:
    """Return a float that is a constant to the gradient."""
    return nodes.Binary(Operator.STRAIGHT_THROUGH, value, nodes.Const(0.0, value.type), value.type)
