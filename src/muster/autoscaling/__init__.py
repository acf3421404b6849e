"""Autoscaling: pure decisions about which slices of machines are made and deleted, on the same
modelled agents and by the same rules as placement (design: Autoscaling)."""
