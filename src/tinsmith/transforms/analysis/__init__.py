"""What is known of a kernel without running it: each question in a file of its own."""

from ._ownership import concurrent_loop, owned

__all__ = ["concurrent_loop", "owned"]
