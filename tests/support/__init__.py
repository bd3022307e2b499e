"""What several test files share. `tests/` is on the path, so it is imported as `support`."""
