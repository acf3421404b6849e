"""Alembic's entry: migrate over the connection that the caller hands in."""

from alembic import context

from muster.store.database.postgresql import compare_text_by_bytes
from muster.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
    if connection.dialect.name == "postgresql":
        compare_text_by_bytes(connection)
