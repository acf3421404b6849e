"""A virtual world for the real decisions: traces replayed against policies (DESIGN section 12)."""
