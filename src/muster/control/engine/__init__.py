"""The coordinator engine: handlers act, it judges (design: The engine judges)."""
