"""The daemon on one machine (design: Agents)."""
