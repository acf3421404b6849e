"""The reasons why a session waits, in numbers."""
