"""Composition roots: the processes that `up`, `controller` and `agent` start."""
