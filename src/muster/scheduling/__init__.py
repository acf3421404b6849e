"""Scheduling: decisions on the sessions that start, and on their agents, made on a snapshot of one
scaling group (design: Decisions are pure)."""
