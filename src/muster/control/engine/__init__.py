"""The engine: handlers act, and the engine judges their results (design: The engine judges)."""
