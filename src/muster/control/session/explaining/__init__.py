"""The answers of `muster why` about sessions."""
