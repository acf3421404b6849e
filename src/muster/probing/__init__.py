"""Probing: finding out at their addresses how replicas are, by a process of its own."""
