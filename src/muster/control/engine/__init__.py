"""The coordinator engine: handlers act, it judges (DESIGN section 2, rule 3)."""
