"""The handlers of a session's steps, from its queue to its end (source: Sokovan)."""
