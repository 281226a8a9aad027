"""Write the migration from the newest schema to the models, for a developer to review.

``python scripts/migration.py "add racks"``
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command

from compatgate.kit.database import tables
from compatgate.kit.database.database import Database


def main() -> int:
    """Migrate an empty database, and write what its schema lacks."""
    with TemporaryDirectory() as folder:
        database = Database.open(str(Path(folder) / "scratch.db"))
        tables.migrate_schema(database)
        with database.writing() as session:
            config = tables.alembic_config()
            config.attributes["connection"] = session.connection()
            version = f"{int(tables.EXPECTED_VERSION) + 1:04}"
            command.revision(config, sys.argv[1], autogenerate=True, rev_id=version)
        database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
