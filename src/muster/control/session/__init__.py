"""The life of a session: the handlers of its steps (source: Sokovan)."""
