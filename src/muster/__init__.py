"""Muster, a scheduler and control plane for GPU clusters."""
