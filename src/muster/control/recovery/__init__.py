"""Recoveries: a job that opts in has its machines checked and healed, and goes on."""
