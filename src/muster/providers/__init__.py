"""Providers: where machines come from. Each makes, deletes, lists and reboots slices of machines
for pools (design: Autoscaling); nothing here decides which."""
