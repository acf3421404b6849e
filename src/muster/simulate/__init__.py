"""A virtual world for the real decisions: traces replayed against policies (design: Simulation)."""
