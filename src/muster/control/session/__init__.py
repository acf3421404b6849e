"""The life of a session: the handlers of reference sokovan-status-transitions."""
