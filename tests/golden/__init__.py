"""The golden store: what the compiler writes for several hundred kernels, so that a change of it is seen.

`digests.json` has a digest for each kernel, engine and way of using it. `./scripts/golden` writes it, writes the texts,
and shows what changed since another commit.
"""
