"""The API's reads from SQL: functions of a connection, every page bounded.

Each answers with rows that its principal may see; other rows are not found (design: Access).
"""
