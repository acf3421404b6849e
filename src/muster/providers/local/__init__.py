"""Machines that are agent processes on the controller's own machine."""
