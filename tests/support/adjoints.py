"""The same op with its gradient from elsewhere."""

import tinsmith as ts


def with_adjoint(adjoint, op):
    """Return the op with its gradient from `adjoint`; only for ops whose sole option is scratch."""
    spec = op.spec
    options = {"scratch": spec.scratch_text or None, "adjoint": adjoint}
    if isinstance(op.kernel, tuple):
        return ts.chain(spec.text, list(op.kernel), **options)
    return ts.op(spec.text, **options)(op.kernel)
