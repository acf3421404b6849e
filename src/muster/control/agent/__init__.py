"""Agents: how they join, say Hello and fall silent, and the consequences for their kernels."""
