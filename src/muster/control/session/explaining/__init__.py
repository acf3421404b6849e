"""The answers of `muster why` about sessions: what ``scheduling.explaining`` finds, by names and as
far as the asker may see it."""
