"""The parts of every run, a module each; the runner finds the ``Part`` that a module declares."""
