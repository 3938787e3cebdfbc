"""How Alembic applies the migrations: on the connection that `migrate` of `background/storage/database.py` opened."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="podwright_migrations",
)
with context.begin_transaction():
    context.run_migrations()
