"""The answers of `muster why` about sessions: the explanations of ``scheduling.explaining``, with
names in place of ids, as far as the asker may see them."""
