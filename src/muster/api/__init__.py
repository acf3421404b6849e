"""The HTTP edge: it authenticates callers, reads requests and writes answers; control decides."""
