"""Why a session waits, in numbers."""
