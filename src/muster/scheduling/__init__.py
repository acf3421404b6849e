"""Who starts where: decisions on a snapshot of one scaling group (design: Decisions are pure)."""
