"""The command line. It shows answers of ``muster.client`` and decides nothing itself."""
