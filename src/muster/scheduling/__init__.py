"""Scheduling: pure decisions about which sessions start, and on which agents, made on a snapshot of
one scaling group (design: Decisions are pure)."""
