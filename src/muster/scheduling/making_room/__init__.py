"""When room comes free, whose it is then, and who leaves for whom."""
