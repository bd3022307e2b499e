"""The same op with its gradient from elsewhere."""

import tinsmith as ts


def by(adjoint, op):
    """The op again, its gradient from `adjoint`; for ops without options of their own but scratch."""
    spec = op.spec
    options = {"scratch": spec.scratch_text or None, "adjoint": adjoint}
    if isinstance(op.kernel, tuple):
        return ts.chain(spec.text, list(op.kernel), **options)
    return ts.op(spec.text, **options)(op.kernel)
