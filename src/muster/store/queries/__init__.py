"""The API's reads from SQL: functions of a connection, every page bounded.

Each query answers with rows that its principal may see; all other rows count as not found (design:
Access).
"""
