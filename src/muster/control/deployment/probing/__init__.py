"""Probing: finding out at their addresses how replicas are."""
