"""State in SQL, and its mirror in memory: the live part of the cluster, changed only by units."""
