"""How alembic reaches the database: on the connection that `compatgate.store.schema` hands it.

To write a new migration: ``python -m compatgate.store.schema "what changes"``.
"""

from alembic import context

from compatgate.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
