"""Machines that exist already, of which a pool claims as many as it needs, over SSH."""
