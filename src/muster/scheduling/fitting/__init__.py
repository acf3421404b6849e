"""Whether and where a session fits."""
