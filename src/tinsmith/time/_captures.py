"""Captured tensors: tensors that a Python step uses besides its arguments, found in autograd's graph.

A scan is one autograd Function, which has gradients for its arguments only. So tensors of a closure or a module that
require a gradient become arguments of it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from .._errors import GradientError, refusal


def find_captured_leaves(results: Iterable[Tensor], known: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves of autograd's graph that results depend on and that are not `known`, in the order found."""
    given = {id(one) for one in known}
    leaves: dict[int, Tensor] = {}
    queue = [one.grad_fn for one in results if one.grad_fn is not None]
    seen = set(queue)
    while queue:
        node = queue.pop()
        leaf = getattr(node, "variable", None)  # present in the node that accumulates a leaf's gradient
        if leaf is not None and id(leaf) not in given:
            leaves[id(leaf)] = leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return list(leaves.values())


def refuse_unknown(step: str, number: int, tensors: Sequence[Tensor]) -> None:
    """Raise GradientError if a step uses tensors that the first step did not use: their gradients would be missing.

    Args:
        step: the name of the step.
        number: the number of the step, for the message.
        tensors: the unknown tensors.
    """
    if not tensors:
        return
    words = (
        f"step {number} of a scan over `{step}` uses a tensor that requires a gradient "
        "and is not an argument of the scan"
    )
    rows = [("tensor", f"{tuple(tensors[0].shape)} {tensors[0].dtype}"), ("in step 0", "not used")]
    remedy = "Pass it in `parameters`: captured tensors are found only in the first step."
    raise GradientError(refusal(words, rows, remedy))
