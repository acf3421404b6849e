"""Scaling groups and quotas, as operators set them."""
