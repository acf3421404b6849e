"""The daemon on one machine (DESIGN section 11)."""
