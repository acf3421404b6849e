"""Checks of the machine that an agent is on, each in a process of its own."""
