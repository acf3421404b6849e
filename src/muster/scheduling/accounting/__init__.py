"""The resources that owners use now, and have used of late."""
