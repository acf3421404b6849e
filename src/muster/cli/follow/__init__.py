"""Watching a job from the terminal: its progress, its tasks' output, and Ctrl-C."""
