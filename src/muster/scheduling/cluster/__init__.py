"""The agents of a group as placement sees them, in columns of numbers."""
