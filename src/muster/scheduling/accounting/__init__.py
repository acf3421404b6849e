"""Who holds what now, and who has used what of late."""
