"""Powers of powers, kept apart.

Compiled without its advanced optimization, Taichi 1.7.4 ends the process ("TypedConstant: Not supported") on a power
with an integer exponent whose base is another one, `(x ** 2) ** 2`, also where a local lies between. Two changes of
sign between them change no value and prevent it.

    y[i] = pow(pow(x[i], 2), 3)        ->        y[i] = -(-pow(-(-pow(x[i], 2)), 3))
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import Operator, nodes, types, walk


def nests_powers(kernel: nodes.Kernel) -> bool:
    """Return True if a power with an integer exponent may be the base of another one: if there are two."""
    return sum(map(_is_power, walk.parts_in(kernel.body))) > 1


def separate_powers(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return the kernel with the sign of each such power changed twice; the same object if none can be nested."""
    if not nests_powers(kernel):
        return kernel

    def separate(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        if not (isinstance(one, nodes.Binary) and _is_power(one)):
            return one
        return nodes.Unary(Operator.NEG, nodes.Unary(Operator.NEG, one, one.type), one.type)

    return replace(kernel, body=walk.change_parts(kernel.body, separate))


def _is_power(one: nodes.Expr) -> bool:
    return isinstance(one, nodes.Binary) and one.operator == Operator.POW and not types.is_float(one.right.type)
