"""Machines that may be faulty: the steps from suspicion back to work."""
