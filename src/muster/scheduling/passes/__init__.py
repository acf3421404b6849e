"""A group's queue, and one pass over it."""
