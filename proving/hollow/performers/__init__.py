"""Hollow twins of performers (design: Effects): each loses, doubles and delays, by a seed."""
