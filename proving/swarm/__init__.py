"""Runs of a hollow world from a seed: users act, faults happen, and invariants are checked all the
while.

A run is a list of steps, each of them data, so that a failing run can be told as a story, replayed
exactly, shrunk, and kept as a scenario.
"""
