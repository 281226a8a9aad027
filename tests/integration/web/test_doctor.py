"""What is broken ends in one line that says the way back: in doctor, check and serve."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from compatgate.documents.sources import read_paths
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import open_rooms
from compatgate.service.audit import chain as audit

Command = Callable[..., tuple[int, str, str]]
Checks = dict[str, dict[str, str]]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE", "SERVER", "TOKEN", "STATE", "REGISTRIES", "SIGNING_KEY", "FACTS"):
        monkeypatch.delenv(f"COMPATGATE_{name}", raising=False)


@pytest.fixture
def examine(command: Command) -> Callable[..., tuple[int, Checks]]:
    """Run doctor: exit status, and the checks by name."""

    def run(database: str, *options: str) -> tuple[int, Checks]:
        status, out, err = command("doctor", "--database", database, "--format", "json", *options)
        assert not err
        report = json.loads(out)
        assert report["ok"] == (status == 0)
        return status, {check["name"]: check for check in report["checks"]}

    return run


def _stock(url: str, scope: str = "admin") -> None:
    rooms = open_rooms(url, overlays=[])
    rooms.matrix.import_documents(
        read_paths([matrix_dir() / "examples"]), Authorship("tester", "to see")
    )
    rooms.tokens.create("boss", [scope], by="tester")
    rooms.gate.decide(
        {"target": "prod-a100", "stack": {"cuda": "12.4"}}, asked_by="x", source="rest"
    )
    rooms.close()


@pytest.fixture
def stocked_url(database_url: str) -> str:
    """A database of either kind with a matrix, a token and a decision."""
    tables.migrate_schema(Database.open(database_url))
    _stock(database_url)
    return database_url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An SQLite file with a matrix, a token and a decision."""
    path = tmp_path / "gate.db"
    _stock(str(path))
    return path


def test_a_sound_installation_has_no_failure(
    stocked_url: str, examine: Callable[..., tuple[int, Checks]]
) -> None:
    with_rows = Database.open(stocked_url)
    with with_rows.reading() as session:
        before = session.execute(text("SELECT count(*) FROM decisions")).scalar()
    status, checks = examine(stocked_url)
    assert (status, before) == (0, 1)
    failing = {name for name, check in checks.items() if check["state"] not in ("ok", "skip")}
    assert failing <= {"checksums", "disk"}
    assert checks["matrix"]["message"] == "revision 1, 4 targets, 10 entries"
    with with_rows.reading() as session:  # the rehearsed decision is not there
        assert session.execute(text("SELECT count(*) FROM decisions")).scalar() == 1
    with_rows.close()


def test_entries_that_match_one_build_alone_are_listed(
    file: Path, tmp_path: Path, examine: Any, command: Command
) -> None:
    document = tmp_path / "own.yaml"
    document.write_text(
        "apiVersion: compatgate.dev/v1\nkind: Entry\nmetadata: {name: own-build}\nspec:\n"
        "  {targets: [prod-a100], components: {torch: ==2.4.1+acme.7}, status: candidate,"
        " reason: ours}\n"
    )
    status, _, err = command("matrix", "import", str(document), "--database", str(file))
    assert (status, err) == (0, "")
    _, checks = examine(str(file))
    assert checks["versions"]["message"] == (
        "entries that match one build or post-release alone: own-build"
    )


def _refusals(command: Command, run_serve: Callable[..., Any], url: str) -> list[tuple[int, str]]:
    """What check and serve say: exit status and their one line."""
    asked = ("check", "--target", "prod-a100", "--stack", "cuda=12.4", "--database", url)
    status, _, err = command(*asked)
    server = run_serve("--database", url, ready=False)
    _, said = server.process.communicate(timeout=30)
    found = [(status, err), (server.process.returncode, said)]
    for _, line in found:
        assert line.startswith("error: "), line
        assert line.count("\n") == 1, line
        assert "Traceback" not in line
    return found


def _flip_pages(path: Path) -> None:
    """Write over a part of every page behind the first two."""
    content = bytearray(path.read_bytes())
    for start in range(4096 * 2, len(content), 4096):
        content[start : start + 100] = b"\xa5" * 100
    path.write_bytes(content)


def test_a_corrupt_page_is_named_with_the_way_back(
    file: Path, examine: Any, command: Command, run_serve: Any
) -> None:
    _flip_pages(file)
    status, checks = examine(str(file))
    assert status == 1
    (found,) = [check for check in checks.values() if "damaged" in check["message"]]
    assert found["state"] == "fail"
    assert "compatgate db restore" in found["fix"]
    for code, line in _refusals(command, run_serve, str(file)):
        assert code in (2, 3)
        assert "is damaged" in line
        assert "compatgate db restore" in line


def test_a_file_that_is_not_a_database_is_named(
    tmp_path: Path, examine: Any, command: Command, run_serve: Any
) -> None:
    path = tmp_path / "gate.db"
    path.write_bytes(b"no database" * 1000)
    status, checks = examine(str(path))
    assert (status, checks["database"]["state"]) == (1, "fail")
    for _, line in _refusals(command, run_serve, str(path)):
        assert "is damaged: file is not a database" in line


def test_an_older_program_on_a_newer_schema_is_refused(
    stocked_url: str, examine: Any, command: Command, run_serve: Any
) -> None:
    database = Database.open(stocked_url)
    try:
        with database.writing() as session:
            session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        status, checks = examine(stocked_url)
        assert (status, checks["schema"]["state"]) == (1, "fail")
        assert "a newer compatgate wrote" in checks["schema"]["message"]
        assert "upgrade compatgate" in checks["schema"]["fix"]
        for code, line in _refusals(command, run_serve, stocked_url):
            assert code in (2, 3)
            assert "schema 9999, known is" in line
            assert "upgrade compatgate" in line
    finally:
        with database.writing() as session:
            session.execute(
                text("UPDATE alembic_version SET version_num = :known"),
                {"known": tables.expected_version()},
            )
        database.close()


def test_a_newer_program_on_an_older_schema_names_the_upgrade(empty_url: str, examine: Any) -> None:
    database = Database.open(empty_url)
    tables.migrate_schema(database, "0005")
    status, checks = examine(empty_url)
    assert (status, checks["schema"]["state"]) == (1, "fail")
    assert "0005 of an older compatgate" in checks["schema"]["message"]
    assert "compatgate db upgrade" in checks["schema"]["fix"]
    assert tables.current_version(database) == "0005"
    database.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "compatgate-test", str(place)]
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine allows no mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(place: Path) -> Path:
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as out:
        try:
            while out.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return ballast


def test_a_full_disk_is_named_and_free_space_mends_it(
    small_disk: Path, examine: Any, command: Command, run_serve: Any
) -> None:
    path = small_disk / "gate.db"
    _stock(str(path))
    ballast = _fill(small_disk)
    status, checks = examine(str(path))
    assert status == 1
    assert checks["disk"]["state"] == "fail"
    assert "free space" in checks["disk"]["fix"]
    said = [c["message"] for c in checks.values() if "has no room" in c["message"]]
    assert said, checks
    for code, line in _refusals(command, run_serve, str(path)):
        assert code in (2, 3)
        assert "has no room" in line
        assert "free space on its disk" in line
    ballast.unlink()
    assert examine(str(path))[1]["recording"]["state"] == "ok"
    assert command("db", "verify", "--database", str(path))[0] == 0


def test_a_backup_that_does_not_fit_leaves_nothing_behind(
    small_disk: Path, file: Path, command: Command
) -> None:
    _fill(small_disk)
    backup = small_disk / "gate.backup"
    status, _, err = command("db", "backup", str(backup), "--database", str(file))
    assert status == 2
    assert f"cannot write {backup}" in err
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_a_deleted_file_is_named(file: Path, examine: Any) -> None:
    file.unlink()
    status, checks = examine(str(file))
    assert (status, checks["database"]["state"]) == (1, "fail")
    assert "was deleted or moved" in checks["database"]["message"]
    assert "compatgate db restore" in checks["database"]["fix"]


def test_a_clock_that_went_back_is_noticed(file: Path, examine: Any) -> None:
    database = Database.open(str(file))
    with database.writing() as session:
        audit.append(
            session,
            at=clock.now() + timedelta(hours=2),
            actor="x",
            action="token.create",
            subject="x",
            detail={},
        )
    database.close()
    status, checks = examine(str(file))
    assert (status, checks["clock"]["state"]) == (1, "fail")
    assert "2 h behind" in checks["clock"]["message"]


def test_a_changed_link_is_noticed(file: Path, examine: Any) -> None:
    database = Database.open(str(file))
    with database.writing() as session:
        session.execute(text("UPDATE audit SET actor = 'nobody' WHERE seq = 1"))
    database.close()
    assert "link 1 was changed" in examine(str(file))[1]["audit chain"]["message"]


def test_tokens_that_end_soon_and_a_missing_admin_are_warnings(
    tmp_path: Path, examine: Any
) -> None:
    path = str(tmp_path / "gate.db")
    _stock(path, scope="read")
    status, checks = examine(path)
    assert (status, checks["tokens"]["state"]) == (0, "warn")
    assert "none has the scope admin" in checks["tokens"]["message"]
    rooms = open_rooms(path, overlays=[])
    rooms.tokens.create("chief", ["admin"], by="x", expires_at=clock.now() + timedelta(days=3))
    rooms.close()
    assert "expire soon: chief" in examine(path)[1]["tokens"]["message"]


def test_open_modes_are_warned_of(file: Path, tmp_path: Path, examine: Any) -> None:
    state = tmp_path / "gate.db-state"
    state.mkdir(mode=0o755)
    checks = examine(str(file))[1]
    assert "chmod 700" in checks["state folder"]["fix"]
    os.chmod(file, 0o644)
    # opening the file mends its mode, and doctor looks before that
    assert "chmod 600" in examine(str(file))[1]["files"]["fix"]


def test_the_state_folder_of_a_gate_is_examined(serve: Any, tmp_path: Path, examine: Any) -> None:
    server = serve()
    database = str(tmp_path / "gate.db")
    snapshot = tmp_path / "gate.db-state" / "snapshot.json"
    deadline = time.monotonic() + 20
    while not snapshot.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    server.stop()
    checks = examine(database)[1]
    assert checks["last snapshot"]["message"].startswith("revision 1, the database confirmed it")
    assert checks["spool"]["state"] == "ok"
    snapshot.write_bytes(snapshot.read_bytes().replace(b"prod", b"demo"))
    assert "is damaged" in examine(database)[1]["last snapshot"]["message"]


def test_an_overlay_that_does_not_exist_is_named(file: Path, examine: Any) -> None:
    status, checks = examine(str(file), "--facts", "no-such.yaml")
    assert (status, checks["facts"]["state"], checks["matrix"]["state"]) == (1, "fail", "skip")


def test_a_running_gate_and_one_that_is_not_there(serve: Any, tmp_path: Path, examine: Any) -> None:
    server = serve()
    url = f"http://{server.host}:{server.port}"
    database = str(tmp_path / "gate.db")
    checks = examine(database, "--server", url, "--token", server.token)[1]
    assert checks["server"]["state"] == "ok"
    assert checks["readiness"]["message"] == "it can decide and record, revision 1"
    server.stop()
    status, checks = examine(database, "--server", url)
    assert (status, checks["server"]["state"]) == (1, "fail")
    assert "does not answer" in checks["server"]["message"]


@pytest.mark.parametrize(
    ("begin", "end", "state", "said"),
    [
        (-10, 90, "ok", "is valid until"),
        (-10, 5, "warn", "is valid until"),
        (-10, -1, "fail", "expired on"),
        (1, 90, "fail", "is valid only from"),
    ],
)
def test_the_end_of_a_certificate_is_told(
    tmp_path: Path, begin: int, end: int, state: str, said: str
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import Encoding

    from compatgate.service.recovery.checks import check_certificate

    key, now = ed25519.Ed25519PrivateKey.generate(), clock.now()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gate.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + timedelta(days=begin))
        .not_valid_after(now + timedelta(days=end))
        .sign(key, None)
    )
    path = tmp_path / "gate.pem"
    path.write_bytes(made.public_bytes(Encoding.PEM))
    check = check_certificate(str(path))
    assert (check.state, said in check.message) == (state, True)
