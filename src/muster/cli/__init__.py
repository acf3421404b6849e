"""The command line. What it shows comes through ``muster.client``; it decides nothing itself."""
