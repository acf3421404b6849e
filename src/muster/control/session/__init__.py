"""The life of a session (source: Sokovan)."""
