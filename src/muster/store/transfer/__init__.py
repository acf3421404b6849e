"""Transfers of all rows of a cluster: out of a database, into a dump or another database.

A transfer knows no entity: it reads the tables that a database has, so that the state of an older
version can be backed up and moved before it is migrated.
"""
