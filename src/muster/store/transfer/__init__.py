"""All rows of a cluster on their way: out of a database, into a dump, into another database.

A transfer knows no entity: it reads whatever tables a database has by its migration, so that state
of an older version can be kept, and moved, before it is migrated.
"""
