"""Random kernels: compiled against interpreted values, generated gradients and tangents against the oracle's.

`_grammar` writes a kernel from a seed, `_verdict` tries one, `_shrink` makes one that fails small, `_campaign` tries
thousands in child processes, for an engine may take its process with it.
"""
