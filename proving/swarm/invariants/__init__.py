"""The invariants of every run (design: Simulation), a module for each subject."""
