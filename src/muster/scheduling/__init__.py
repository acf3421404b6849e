"""Who starts where: pure decisions on a snapshot of one scaling group (DESIGN section 4)."""
