"""Scaling groups and quotas: what operators set."""
