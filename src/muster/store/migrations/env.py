"""Alembic's entry: migrate over the connection that the caller hands in."""

from alembic import context

from muster.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
