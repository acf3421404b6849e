"""Watching a job from the terminal: its progress, its tasks' output, and what Ctrl-C means."""
