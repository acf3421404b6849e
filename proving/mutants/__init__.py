"""Deliberate bugs, each put into a copy of the package: how good seeds are at finding them."""
