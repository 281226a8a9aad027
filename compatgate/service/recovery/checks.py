"""Describe and print the results of checks, and check what a gate reaches: files and network."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from compatgate import version
from compatgate.documents.quantities import describe_seconds
from compatgate.errors import BadInput, CompatgateError, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.resources import install_hint
from compatgate.service.gate.decisions.last_known import SnapshotFile
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions

State = Literal["ok", "warn", "fail", "skip"]
_TIMEOUT_S = 5.0
_SOON = timedelta(days=30)
_RENEW = "renew the certificate; serve reads the new files by itself"
LEAST_FREE = 64 * 2**20
"""Bytes below which a disk counts as full."""
LOW_FREE = 1024 * 2**20
LARGE_LOG = 512 * 2**20
"""Bytes of a write-ahead log that show that a reader holds it open."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
SPOOL_FOLDER = "spool"
_SIDES = ("", "-wal", "-shm", "-turn")


class Check(Struct, frozen=True):
    """One check and what to do; ``skip``: it does not apply here, or could not be made."""

    name: str
    state: State
    message: str
    fix: str = ""


def failed(name: str, error: CompatgateError) -> Check:
    """Return the check that an error ended."""
    return Check(name, "fail", " ".join(error.problem.split()), " ".join(error.hint.split()))


def guarded(name: str, check: Callable[[], Check | Iterator[Check]]) -> Iterator[Check]:
    """Yield the results of a check; an error becomes a failed check."""
    try:
        found = check()
        yield from (found,) if isinstance(found, Check) else found
    except CompatgateError as error:
        yield failed(name, error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        yield Check(name, "fail", f"{where}{quote_error(error)}")


def print_checks(checks: Sequence[Check], *, as_json: bool) -> int:
    """Print results; return 1 if a check failed, else 0."""
    from compatgate.kit.cli.output import print_json, strip_controls

    ok = all(check.state != "fail" for check in checks)
    if as_json:
        print_json({"ok": ok, "checks": [msgspec.to_builtins(check) for check in checks]})
        return 0 if ok else 1
    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        fix = f"; {check.fix}" if check.fix else ""
        line = f"{check.state:<4}  {check.name:<{width}}  {check.message}{fix}"
        print(strip_controls(line))
    return 0 if ok else 1


def check_certificate(path: str) -> Check:
    """Check from when and until when a certificate in PEM is valid."""
    try:
        from cryptography import x509
    except ImportError:
        what = "reading it needs the extra signing"
        return Check("certificate", "skip", what, install_hint("signing"))
    try:
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())[0]
    except ValueError:
        what = f"{path} holds no certificate in PEM"
        raise BadInput(what, field="--tls-cert", value=path) from None
    return judge_validity(
        "certificate", path, found.not_valid_before_utc, found.not_valid_after_utc
    )


def judge_validity(name: str, what: str, begin: datetime, end: datetime) -> Check:
    """Return the check of a certificate's validity."""
    now = clock.now()
    if begin > now:
        return Check(name, "fail", f"{what} is valid only from {begin:%Y-%m-%d %H:%M}Z", _RENEW)
    if end <= now:
        return Check(name, "fail", f"{what} expired on {end:%Y-%m-%d}", _RENEW)
    left = f"{what} is valid until {end:%Y-%m-%d}, {(end - now).days} days"
    return Check(name, "warn", left, _RENEW) if end - now < _SOON else Check(name, "ok", left)


def check_server(url: str, token: str | None) -> Iterator[Check]:
    """Check that a gate is alive and ready, and until when its certificate is valid."""
    from compatgate.client.settings import base_of

    try:
        base = base_of(url)
    except CompatgateError as error:
        yield failed("server", error)
        return
    if base.startswith("https:"):
        yield from guarded("server TLS", lambda: _check_served_certificate(base))

    def check_health() -> Check:
        status, _, took_s = _get(f"{base}/healthz")
        if status == 200:
            return Check("server", "ok", f"{base} is alive, answered in {took_s * 1000:.0f} ms")
        return Check("server", "fail", f"{base}/healthz answered {status}, so it is not a gate")

    health = list(guarded("server", check_health))
    yield from health
    if all(check.state == "ok" for check in health):
        yield from guarded("readiness", lambda: _check_readiness(base, token))


def _check_served_certificate(base: str) -> Check:
    import socket

    parts = urlsplit(base)
    host, port = parts.hostname or "", parts.port or 443
    try:
        with (
            socket.create_connection((host, port), _TIMEOUT_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as secure,
        ):
            found: Any = secure.getpeercert()
    except ssl.SSLCertVerificationError as error:
        why = quote_error(error.verify_message)
        what = f"the certificate of {host}:{port} is not trusted: {why}"
        fix = f"{_RENEW}; name your own authority in SSL_CERT_FILE"
        return Check("server TLS", "fail", what, fix)
    begin, end = (
        datetime.fromtimestamp(ssl.cert_time_to_seconds(found[name]), UTC)
        for name in ("notBefore", "notAfter")
    )
    return judge_validity("server TLS", f"the certificate of {host}:{port}", begin, end)


def _check_readiness(base: str, token: str | None) -> Check:
    status, body, _ = _get(f"{base}/readyz", token)
    if status != 200:
        problem = str(body.get("detail") or body.get("title") or f"answered {status}")
        fix = "run compatgate doctor on the server's machine"
        return Check("readiness", "fail", problem, fix)
    if degraded := body.get("degraded"):
        what = f"degraded: {degraded.get('reason') if isinstance(degraded, dict) else degraded}"
        return Check("readiness", "warn", what, "bring the database back")
    known = f", revision {body['revision']}" if "revision" in body else ""
    return Check("readiness", "ok", f"it can decide and record{known}")


def _get(url: str, token: str | None = None) -> tuple[int, dict[str, Any], float]:
    """Return status, JSON object (empty if there is none) and seconds."""
    from compatgate.gate_client import import_httpx

    import_httpx()
    import httpx

    headers = {"User-Agent": f"compatgate/{version()}"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        reason = quote_error(error)
        hint = "check the address, and that the server runs"
        raise Unavailable(f"{url} does not answer: {reason}", hint=hint) from None
    try:
        body = answer.json()
    except ValueError:
        body = None
    took_s = answer.elapsed.total_seconds()
    return answer.status_code, body if isinstance(body, dict) else {}, took_s


def check_registry(place: str) -> Check:
    """Check that a registry answers; it may ask for credentials then."""
    host = place.partition("/")[0]
    name = host.partition(":")[0]
    scheme = "http" if name in ("localhost", "127.0.0.1") else "https"
    status, _, took_s = _get(f"{scheme}://{host}/v2/")
    if status in (200, 401):
        return Check("registry", "ok", f"{host} answered in {took_s * 1000:.0f} ms")
    what = f"{host} answered {status} to /v2/, so it is not a registry"
    return Check("registry", "fail", what, "check --registry")


def check_hosts(path: str) -> Iterator[Check]:
    """Check that the Docker engines of staging hosts answer; others are the worker's to ask."""
    from compatgate.canary.executors.docker.engine import Engine, translate_errors
    from compatgate.canary.hosts_file import read_hosts

    for host in read_hosts(Path(path)):
        name = f"host {host.name}"
        if host.executor != "docker":
            yield Check(name, "skip", f"the worker checks executor {host.executor}")
            continue
        engine = Engine(host)

        def ping(engine: Engine = engine, name: str = name) -> Check:
            with translate_errors(engine) as api:
                version = api.version().get("Version", "unknown")
            return Check(name, "ok", f"Docker {version} at {engine.where}")

        yield from guarded(name, ping)
        engine.close()


def check_files(path: Path) -> Iterator[Check]:
    """Check owner, mode, write-ahead log and disk of an SQLite file."""
    yield _check_modes(path)
    yield _check_log(path)
    yield check_disk("disk", path.parent)


def _check_modes(path: Path) -> Check:
    for file in (Path(f"{path}{end}") for end in _SIDES):
        try:
            found = file.stat()
        except FileNotFoundError:
            continue
        if not os.access(file, os.R_OK | os.W_OK):
            what = f"this user (uid {os.getuid()}) cannot read and write {file}"
            return Check("files", "fail", what, f"run as uid {found.st_uid}, or change the owner")
        if found.st_mode & _OTHERS:
            what = f"other users can access {file} (mode {stat.S_IMODE(found.st_mode):04o})"
            return Check("files", "warn", what, f"chmod 600 {file}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        what = f"this user cannot make files in {path.parent}, which SQLite's log needs"
        return Check("files", "fail", what, "change the owner or mode of the folder")
    return Check("files", "ok", f"{path}, {_size(path.stat().st_size)}, mode 0600")


def _check_log(path: Path) -> Check:
    try:
        size = Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return Check("log", "ok", "no write-ahead log: the database was closed properly")
    if size <= LARGE_LOG:
        return Check("log", "ok", f"the write-ahead log has {_size(size)}")
    what = f"the write-ahead log has {_size(size)}: a reader has been open for long"
    return Check("log", "warn", what, "end long reads such as stuck backups, or restart the gate")


def check_disk(name: str, folder: Path) -> Check:
    """Check the free space and free files of a folder's disk."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    what = f"{_size(free)} free in {folder}"
    fix = "free space, or move to a larger disk; see compatgate db prune"
    if disk.f_files and not disk.f_favail:
        return Check(name, "fail", f"no file can be made in {folder}: no inodes are left", fix)
    if free < LOW_FREE:
        return Check(name, "fail" if free < LEAST_FREE else "warn", what, fix)
    return Check(name, "ok", what)


def check_state(folder: Path, database: str) -> Iterator[Check]:
    """Check a replica's state folder: owner, mode, snapshot, waiting decisions and disk."""
    if not folder.exists():
        what = f"{folder} does not exist; serve makes it at its start"
        yield Check("state folder", "warn", what)
        return
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode) or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        what = f"this user (uid {os.getuid()}) cannot write {folder}"
        yield Check("state folder", "fail", what, f"run as uid {found.st_uid}, or change the owner")
        return
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        what = f"other users can access {folder} (mode {mode:04o})"
        yield Check("state folder", "warn", what, f"chmod 700 {folder}")
    else:
        yield Check("state folder", "ok", str(folder))
    yield _check_snapshot(folder, database)
    yield _check_spools(folder, database)
    yield check_disk("state disk", folder)


def _check_snapshot(folder: Path, database: str) -> Check:
    file = SnapshotFile(folder, database)
    if not file.path.exists():
        return Check("last snapshot", "warn", "none yet; serve writes it within seconds")
    known = file.read()
    if known is None:
        what = f"{file.path} is damaged, or of another database"
        return Check("last snapshot", "warn", what, "remove it; serve writes it again")
    age = describe_seconds((clock.now() - known.confirmed_at).total_seconds())
    what = f"revision {known.payload.revision}, the database confirmed it {age} ago"
    return Check("last snapshot", "ok", what)


def _check_spools(folder: Path, database: str) -> Check:
    """Look for decisions of ended processes that no gate has delivered."""
    waiting = 0
    spool = Spool(SpoolOptions(folder / SPOOL_FOLDER), database)
    if aside := spool.count_aside():
        what = f"{aside} spools in {folder / SPOOL_FOLDER} are set aside: no log has them"
        return Check("spool", "warn", what, "see the runbook, CompatgateSpoolSetAside")
    for file in spool.others():
        try:
            waiting += sum(delivery.batch.count for delivery in file.scan())
        finally:
            file.close()
    if waiting:
        what = f"{waiting} decisions of ended processes wait in {folder / SPOOL_FOLDER}"
        return Check("spool", "warn", what, "start the gate with this state folder: it delivers")
    return Check("spool", "ok", "no decision of an ended process waits")


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
