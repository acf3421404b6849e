"""Pools, and the slices of machines that their providers make and delete (design: Autoscaling)."""
