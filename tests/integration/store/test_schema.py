"""Migrations: up, down, complete, and refused where an operator must decide."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from compatgate.documents.specs import API_VERSION, decode
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.opening import upgrade_schema
from compatgate.kit.database.tables import Base
from compatgate.service.access.browser_sessions import find_session
from compatgate.service.access.tokens import Tokens, digest_of
from compatgate.service.app import open_rooms
from compatgate.service.matrix.documents import repository as lists
from compatgate.service.matrix.documents import revisions


def test_models_and_migrations_say_the_same(database: Database) -> None:
    with database.writing() as session:
        config = tables.alembic_config()
        config.attributes["connection"] = session.connection()
        config.stdout = io.StringIO()  # alembic keeps the stream of whoever imported it first
        command.check(config)


def test_the_expected_version_is_the_newest_migration() -> None:
    assert (
        ScriptDirectory.from_config(tables.alembic_config()).get_current_head()
        == tables.expected_version()
    )


def test_migrating_up_and_down_leaves_nothing_behind(empty_url: str) -> None:
    database = Database.open(empty_url)
    assert tables.current_version(database) is None
    assert tables.migrate_schema(database) == tables.expected_version()
    with database.reading() as session:
        assert set(Base.metadata.tables) <= set(inspect(session.connection()).get_table_names())
    assert tables.migrate_schema(database, "base") is None
    with database.reading() as session:
        assert inspect(session.connection()).get_table_names() == ["alembic_version"]
    assert tables.migrate_schema(database) == tables.expected_version()
    database.close()


def test_migrating_what_is_current_changes_nothing(database: Database) -> None:
    assert (
        tables.migrate_schema(database)
        == tables.migrate_schema(database)
        == tables.expected_version()
    )


def test_a_new_file_gets_the_schema_when_a_gate_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "gate.db"
    open_rooms(str(path), overlays=[]).close()
    database = Database.open(str(path))
    assert tables.current_version(database) == tables.expected_version()
    database.close()


_AT = "2026-11-01T00:00:00.000000Z"


def _insert_document(
    session: Session, table: str, name: str, document: dict[str, Any], **columns: str
) -> None:
    """Write a document as a program of an older schema did."""
    row = {"name": name, "document": json.dumps(document), "revision": 1, **columns}
    row |= {"created_at": _AT, "updated_at": _AT}
    values = ", ".join(f":{column}" for column in row)
    session.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row)


def test_owners_and_labels_that_documents_hold_are_found_after_the_upgrade(empty_url: str) -> None:
    database = Database.open(empty_url)
    tables.migrate_schema(database, "0014")
    about = {"name": "x", "owner": "a b", "labels": {"t": "1"}}
    specs: tuple[tuple[str, str, dict[str, str], dict[str, Any]], ...] = (
        (
            "targets",
            "Target",
            {"labels": " t=1 "},
            {"pools": [{"name": "p", "gpu": "L4", "driver": "550.54.15"}]},
        ),
        (
            "entries",
            "Entry",
            {"status": "blessed", "components": " cuda "},
            {"targets": ["x"], "components": {"cuda": "12.4"}, "status": "blessed"},
        ),
    )
    with database.writing() as session:
        made = "INSERT INTO revisions VALUES (1, :at, 'a', 'why', 'import', 2, NULL)"
        session.execute(text(made), {"at": _AT})
        for table, kind, columns, spec in specs:
            document = {"apiVersion": API_VERSION, "kind": kind, "metadata": about, "spec": spec}
            _insert_document(session, table, "x", document, **columns)
    tables.migrate_schema(database)
    with database.reading() as session:
        for kind in ("Target", "Entry"):
            found = lists.list_documents(session, kind, owner="a b", label="t=1").items
            assert [row.name for row in found] == ["x"]
    tables.migrate_schema(database, "0014")
    database.close()


def test_an_older_database_keeps_what_it_holds(empty_url: str) -> None:
    database = Database.open(empty_url)
    tables.migrate_schema(database, "0001")
    made = "INSERT INTO revisions VALUES (1, :at, 'someone', 'why', 'import', 1)"
    with database.writing() as session:
        session.execute(text(made), {"at": "2026-11-01T00:00:00.000000Z"})
    with pytest.raises(tables.SchemaMismatch, match="has schema 0001, needed"):
        tables.prepare_schema(database)
    upgrade = upgrade_schema(database)
    assert (upgrade.before, upgrade.after) == ("0001", tables.expected_version())
    assert (upgrade.copy is not None) == database.is_sqlite
    with database.reading() as session:
        assert session.execute(text("SELECT author FROM revisions")).scalar() == "someone"
        assert session.execute(text("SELECT count(*) FROM runs")).scalar() == 0
    assert tables.migrate_schema(database, "0001") == "0001"
    database.close()


def test_a_shared_database_is_not_migrated_but_the_command_is_named(
    request: pytest.FixtureRequest,
) -> None:
    server = request.getfixturevalue("postgresql_server")
    database = Database.open(server)
    with pytest.raises(tables.SchemaMismatch, match="compatgate db upgrade --database postgresql:"):
        tables.prepare_schema(database)
    assert tables.current_version(database) is None
    database.close()


def test_a_database_of_a_newer_program_is_refused(database: Database) -> None:
    with database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (tables.prepare_schema, tables.migrate_schema):
        with pytest.raises(tables.SchemaMismatch, match="a newer compatgate wrote"):
            use(database)  # type: ignore[operator]


def test_processes_that_start_together_migrate_once(empty_url: str) -> None:
    results: list[str | None] = []

    def start() -> None:
        database = Database.open(empty_url)
        results.append(tables.migrate_schema(database))
        database.close()

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [tables.expected_version()] * 6


def test_an_sqlite_database_has_the_settings_that_the_log_relies_on(tmp_path: Path) -> None:
    database = Database.open(str(tmp_path / "gate.db"))
    with database.reading() as session:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
            assert session.execute(text(f"PRAGMA {pragma}")).scalar() == value
    database.close()


def test_targets_that_exist_at_the_upgrade_audit_packages_and_missing_facts(empty_url: str) -> None:
    database = Database.open(empty_url)
    tables.migrate_schema(database, "0005")
    pool = {"name": "a", "gpu": "L4", "driver": "580.65.06"}
    body = {
        "kind": "Target",
        "apiVersion": "compatgate.dev/v1",
        "metadata": {"name": "prod"},
        "spec": {"pools": [pool]},
    }
    stored = decode("Target", json.dumps(body))
    with database.writing() as session:
        made = datetime(2026, 11, 1, tzinfo=UTC)
        edit = revisions.Edit(None, stored)
        revisions.make_revision(
            session,
            [edit],
            author="ada",
            reason="first",
            action="import",
            at=made,
            write=lambda session, edits, *, revision, at: _insert_document(
                session, "targets", "prod", body, labels="  "
            ),
        )
    tables.migrate_schema(database)
    with database.reading() as session:
        target = decode("Target", session.execute(text("SELECT document FROM targets")).scalar())
        made_by = session.execute(text("SELECT author, reason FROM revisions WHERE number = 2"))
        author, reason = made_by.one()
    assert (target.spec.policy.packages, target.spec.policy.missing_facts) == ("audit", "audit")
    assert (author, "packages: enforce" in reason) == ("compatgate", True)
    database.close()


def test_a_new_database_is_migrated_without_a_revision(database: Database) -> None:
    with database.reading() as session:
        assert revisions.latest_revision(session) == 0


def test_tokens_and_sessions_survive_the_access_migration_both_ways(empty_url: str) -> None:
    database = Database.open(empty_url)
    tables.migrate_schema(database, "0006")
    at = "2026-11-03T09:30:00.000000Z"
    end = at.replace("2026", "2099")
    with database.writing() as session:
        session.execute(
            text(
                "INSERT INTO tokens (id, name, digest, scopes, created_at, created_by, expires_at)"
                " VALUES ('tk_1', 'ci', :digest, 'gate read', :at, 't', :end)"
            ),
            {"digest": digest_of("cg_old"), "at": at, "end": end},
        )
        session.execute(
            text(
                "INSERT INTO browser_sessions (digest, token_id, created_at, expires_at)"
                " VALUES (:digest, 'tk_1', :at, :end)"
            ),
            {"digest": digest_of("cookie"), "at": at, "end": end},
        )
    tables.migrate_schema(database)
    tokens = Tokens(database)
    holder = tokens.verify("cg_old")
    assert (holder.name, holder.targets) == ("ci", None)
    with database.reading() as session:
        found = find_session(session, digest_of("cookie"))
    assert found is not None
    assert found[0].name == "ci"
    turned = tokens.rotate("ci", by="t", overlap=timedelta(hours=1))
    tables.migrate_schema(database, "0006")
    with database.reading() as session:
        kept = session.execute(text("SELECT name, digest FROM tokens")).all()
    assert [tuple(row) for row in kept] == [("ci", digest_of(turned.secret))]
    tables.migrate_schema(database)
    assert tokens.find("ci").previous_expires_at is None
    database.close()
