"""How alembic reaches the database: on the connection that `schema` hands it.

To write a new migration: ``python -m compatgate.kit.database.schema "what changes"``.
"""

from alembic import context

from compatgate.service.models import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
