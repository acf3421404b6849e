"""`muster db`: a cluster's state as a whole is checked, kept, put back, migrated and moved."""
