"""What the API reads from SQL: functions of a connection, every page bounded.

Each filters by what its principal may see; the rest is not found (design: Access).
"""
