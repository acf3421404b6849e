"""Attacks on one live cluster, one class a file; meanwhile another user's work must not suffer.

To add one, take the ``target`` fixture and attack. After each test ``conftest.py`` looks whether
the bystander's kernels still run and its submissions were accepted; at the end, how long they took.
"""
