"""Agents: joining, saying hello, falling silent, and what that means for their kernels."""
