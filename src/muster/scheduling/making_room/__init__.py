"""Reservations and preemption: when room becomes free, which session gets it, and which sessions
must leave for another."""
