"""Health of machines, as pure values: what checks and the kernel's log tell, and what it means."""
