"""A module a command. Heavy imports stand inside the functions, so that ``--help`` is quick."""
