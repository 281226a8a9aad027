"""The log and the bundle of a far gate, with a central gate that answers as each test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import Any

import pytest
from attest_keys import signer_of

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.audit.keys import read_keys
from compatgate.service.gate.decisions.batches import FIRST_PREVIOUS
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.far.bundles import BundleRefused, BundleSource, sign_bundle
from compatgate.service.gate.far.gate import CentralDestination, NoDatabase, ReadOnlyGate
from compatgate.service.gate.far.keeper import BundleKeeper, BundleOptions, Central
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.matrix.snapshots.snapshot import (
    BUNDLE_FORMAT,
    Payload,
    open_bundle,
    seal_bundle,
)

AT = datetime(2026, 11, 3, 9, tzinfo=UTC)
PROBLEM = {"detail": "batch 1 differs", "type": "https://compatgate.dev/problems/chain-forked"}
Said = tuple[int, Mapping[str, str], bytes]


def until(is_so: Callable[[], Any]) -> None:
    deadline = monotonic() + 20
    while not is_so():
        assert monotonic() < deadline, "that took too long"
        sleep(0.02)


class Stand(ThreadingHTTPServer):
    """A central gate: it gives the answers of a list, then stores what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.answers: list[Said] = []
        self.bundle = b""
        self.delay_s = 0.0
        self.sizes: list[int] = []
        self.stored: dict[tuple[str, int], dict[str, Any]] = {}
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, body: bytes) -> Said:
        if self.answers:
            return self.answers.pop(0)
        sleep(self.delay_s)
        sent = json.loads(body)
        self.sizes.append(len(body))
        for batch in sent["batches"]:
            self.stored[sent["writer"], batch["sequence"]] = batch
        last = sent["batches"][-1]["sequence"]
        found = {"writer": sent["writer"], "sequence": last, "stored": 1, "known": 0}
        return 200, {}, json.dumps(found).encode()

    def asked_by(self) -> list[str]:
        batches = sorted(self.stored.items())
        return [one["asked_by"] for _, batch in batches for one in batch["decisions"]]


class _Handler(BaseHTTPRequestHandler):
    server: Stand
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"] == "Bearer cg_far"
        self._answer(*self.server.take(body))

    def do_GET(self) -> None:
        is_known = self.headers.get("If-None-Match") == "known"
        self._answer(304 if is_known else 200, {}, self.server.bundle)

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        media = "application/json" if status < 400 else "application/problem+json"
        for name, value in {"Content-Type": media, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand()
    yield made
    made.shutdown()
    made.server_close()


def open_log(stand: Stand, folder: Path, size: int = 1024 * 1024) -> DecisionLog:
    central = Central(stand.url, token="cg_far", name="far-1")
    database = NoDatabase(BundleOptions(central, (), folder))
    options = SpoolOptions(folder / "spool", size)
    return DecisionLog(database, "sync", options, lambda: CentralDestination(central))


def row(who: str, verdict: int = 1, body: str = "{}") -> tuple[NewDecision, str]:
    found = NewDecision(f"vd_{verdict:032x}", AT, None, "pass", True, 1, None, who, "rest", 5)
    return found, body


def test_decisions_are_delivered_once_the_central_gate_takes_them(
    stand: Stand, tmp_path: Path
) -> None:
    busy = (429, {"Retry-After": "1"}, b"")
    stand.answers = [busy, (503, {}, b""), (503, {}, b""), (502, {}, b"<html>")]
    log = open_log(stand, tmp_path)
    for name in "abc":
        log.record(*row(name))
    assert (log.away, log.state.degraded) == (None, False)
    until(lambda: len(stand.stored) == 3)
    assert stand.asked_by() == ["a@far-1", "b@far-1", "c@far-1"]
    writers = {writer for writer, _ in stand.stored}
    assert len(writers) == 1
    assert writers.pop().startswith("far-1:")
    first, second, third = (stand.stored[key] for key in sorted(stand.stored))
    assert first["previous"] == FIRST_PREVIOUS
    assert (second["previous"], third["previous"]) == (first["hash"], second["hash"])
    assert [list(one["verdicts"]) for one in (first, second)] == [["vd_" + "0" * 31 + "1"], []]
    until(lambda: log.state.batches == 0)
    log.close()
    assert not list((tmp_path / "spool").iterdir())


def test_after_a_fork_another_writer_goes_on(stand: Stand, tmp_path: Path) -> None:
    log = open_log(stand, tmp_path)
    log.record(*row("before"))
    until(lambda: log.state.batches == 0)
    forked = (409, {}, json.dumps(PROBLEM).encode())
    stand.answers = [forked]
    log.record(*row("forked"))
    until(lambda: log.state.set_aside == 1)
    log.record(*row("after"))
    until(lambda: "after@far-1" in stand.asked_by())
    assert sorted(stand.asked_by()) == ["after@far-1", "before@far-1"]
    (after,) = [one for one in stand.stored.values() if one["decisions"][0]["asked_by"][0] == "a"]
    assert (after["sequence"], len(after["verdicts"])) == (1, 1), "the verdict comes once more"
    log.close()
    assert [path.suffix for path in (tmp_path / "spool").iterdir()] == [".aside"]


def test_a_full_spool_records_nothing_until_it_is_delivered(stand: Stand, tmp_path: Path) -> None:
    away = [(503, {"Retry-After": "3600"}, b"")]
    stand.answers = away * 10_000
    log = open_log(stand, tmp_path, 8192)
    recorded: list[str] = []

    def record_many() -> None:
        for number in range(1000):
            log.record(*row(str(number)))
            recorded.append(f"{number}@far-1")

    with pytest.raises(Unavailable, match="bring the database, or the central gate, back"):
        record_many()
    with pytest.raises(Unavailable, match="the spool is full"):
        log.rehearse()
    stand.answers = []
    until(lambda: log.state.batches == 0)
    log.rehearse()
    log.record(*row("later"))
    until(lambda: log.state.batches == 0)
    assert stand.asked_by() == [*recorded, "later@far-1"]
    log.close()


def test_a_spool_begins_anew_under_load_before_it_is_full(stand: Stand, tmp_path: Path) -> None:
    stand.delay_s = 0.02
    log = open_log(stand, tmp_path, 512 * 1024)
    recorded = [f"{number}-{token_hex(200)}" for number in range(2000)]

    def record(names: Sequence[str]) -> None:
        for name in names:
            deadline = monotonic() + 60
            while True:
                try:
                    log.record(*row(name))
                    break
                except Unavailable:  # full: deliveries are slower than this machine asks
                    assert monotonic() < deadline
                    sleep(0.05)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(record, (recorded[start::4] for start in range(4))))
    until(lambda: log.state.batches == 0)
    assert sorted(stand.asked_by()) == sorted(f"{name}@far-1" for name in recorded)
    log.close()


def test_long_verdicts_are_divided_among_batches_and_requests(stand: Stand, tmp_path: Path) -> None:
    log = open_log(stand, tmp_path, 8 * 1024 * 1024)
    body = json.dumps({"text": "x" * 100_000})
    log.submit([row(str(n), n, body) for n in range(10)] + [row("z", 9, body)]).result(20)
    until(lambda: log.state.batches == 0)
    counts = [len(stand.stored[key]["decisions"]) for key in sorted(stand.stored)]
    assert counts == [2, 2, 2, 2, 3]
    assert max(stand.sizes) < 1024 * 1024
    log.close()


def test_a_gate_without_a_database_says_where_to_ask(tmp_path: Path) -> None:
    database = NoDatabase(BundleOptions(Central("https://gate.example"), (), tmp_path))
    for transaction in (database.reading, database.writing, database.working):
        with pytest.raises(ReadOnlyGate, match=r"ask the central gate: https://gate.example"):
            transaction().__enter__()
    assert not list(tmp_path.iterdir())


# --- bundles ------------------------------------------------------------------------------------


def make_bundle(
    revision: int, evidence: int = 0, *, format_: int = BUNDLE_FORMAT, **others: Any
) -> bytes:
    others = {"issued_at": clock.now(), "valid_until": clock.now() + timedelta(hours=1), **others}
    return seal_bundle(
        Payload(format_, revision, None, "facts", (), (), (), evidence_number=evidence, **others)
    )


@pytest.fixture(scope="module")
def signers() -> Sequence[Any]:
    return signer_of("p256"), signer_of()


@pytest.fixture
def store(stand: Stand, signers: Sequence[Any], tmp_path: Path) -> BundleKeeper:
    public = signers[0].public_key.keyval["public"].encode()
    keys = read_keys(public, "key")
    return BundleKeeper(BundleOptions(Central(stand.url, token="cg_far"), keys, tmp_path))


def test_the_last_good_bundle_stays_until_a_better_one_comes(
    stand: Stand, store: BundleKeeper, signers: Sequence[Any]
) -> None:
    trusted, other = signers
    assert store.read() is None
    stand.bundle = sign_bundle(make_bundle(5, 3), trusted)
    present = store.poll(None)
    assert present is not None
    good = store.path.read_bytes()
    tampered = sign_bundle(make_bundle(6, 3), trusted).replace(b'"sig": "', b'"sig": "AAAA')
    refused: list[tuple[bytes, type[CompatgateError], str]] = [
        (make_bundle(6, 3), BundleRefused, "is not signed"),
        (sign_bundle(make_bundle(6, 3), other), BundleRefused, "is not trusted"),
        (tampered, BundleRefused, "the signature .* is invalid|malformed"),
        (sign_bundle(make_bundle(4, 3), trusted), BundleRefused, r"is older \(revision 4"),
        (sign_bundle(make_bundle(5, 2), trusted), BundleRefused, "is older"),
        (sign_bundle(make_bundle(6, 3, format_=9), trusted), CompatgateError, "has format 9"),
        (b"<html>", CompatgateError, "is not a bundle"),
        (b"", CompatgateError, "is not a bundle"),
    ]
    for content, error, says in refused:
        stand.bundle = content
        with pytest.raises(error, match=says):
            store.poll(present)
        assert store.path.read_bytes() == good
        found = store.read()
        assert found is not None
        assert found.trusted.version == (5, 3, 0)
    stand.bundle = sign_bundle(make_bundle(6, 3), trusted)
    newer = store.poll(present)
    assert newer is not None
    assert (newer.snapshot.revision, newer.snapshot.evidence) == (6, 3)
    stand.bundle = sign_bundle(make_bundle(5, 9), trusted)
    with pytest.raises(BundleRefused, match="is older"):  # another process was quicker
        store.poll(present)
    store.path.write_bytes(make_bundle(7))
    assert store.read() is None, "a file that nobody signed is no bundle"


def test_a_replayed_bundle_is_refused_even_by_an_empty_state_folder(
    stand: Stand, store: BundleKeeper, signers: Sequence[Any]
) -> None:
    now, hour = clock.now(), timedelta(hours=1)

    def issued(number: int, at: datetime) -> bytes:
        found = make_bundle(5, issue=number, issued_at=at, valid_until=at + 24 * hour)
        return sign_bundle(found, signers[0])

    for at, says in ((now - 25 * hour, "expired at"), (now + hour, "issued in the future")):
        stand.bundle = issued(7, at)
        with pytest.raises(Unavailable, match=says):
            store.poll(None)
        assert not store.path.exists()
    stand.bundle = issued(9, now - hour)
    present = store.poll(None)
    stand.bundle = issued(8, now - 2 * hour)
    with pytest.raises(BundleRefused, match=r"is older \(revision 5, evidence 0, issue 8"):
        store.poll(present)


def test_the_entity_tag_of_a_bundle_names_its_content(
    tmp_path: Path, signers: Sequence[Any]
) -> None:
    """A gate that was restored from a backup has the same revision again, with other documents."""

    def revised(path: str, reason: str) -> Rooms:
        rooms = open_rooms(str(tmp_path / path), overlays=[])
        spec = {"targets": ["*"], "components": {"cuda": "12.4.*"}, "status": "candidate"}
        body = {"metadata": {"name": "e"}, "spec": {**spec, "reason": reason}}
        rooms.matrix.create("Entry", body, Authorship("me", "why"))
        return rooms

    def tag(rooms: Rooms) -> str:
        source = BundleSource(rooms.gate.database, rooms.gate.snapshots, [])
        served = source.serve("k" * 64, lambda payload, kind: [])
        assert source.serve("k" * 64, no_signature) is served
        payload = open_bundle(served.content, "bundle").payload
        assert payload.issued_at is not None
        assert payload.valid_until == payload.issued_at + timedelta(days=1)
        return served.etag

    def no_signature(payload: bytes, kind: str) -> list[dict[str, Any]]:
        raise AssertionError("nothing is new")

    lost, restored = revised("lost.db", "before"), revised("restored.db", "after")
    tags = {tag(one) for one in (lost, lost, restored)}  # of two processes, and of another content
    assert lost.gate.snapshots.current().revision == restored.gate.snapshots.current().revision
    for rooms in (lost, restored):
        rooms.close()
    assert len(tags) == 2


@pytest.mark.parametrize(
    "end", [{"valid_until": None}, {"issued_at": None}, {"valid_until": clock.now() + timedelta(7)}]
)
def test_an_exported_file_is_not_what_a_gate_serves(
    stand: Stand, store: BundleKeeper, signers: Sequence[Any], end: dict[str, Any]
) -> None:
    """It could be replayed to an empty state folder long after it was made."""
    stand.bundle = sign_bundle(make_bundle(5, **end), signers[0])
    with pytest.raises(BundleRefused, match="was exported"):
        store.poll(None)
    assert not store.path.exists()


def test_no_decision_rests_on_a_bundle_whose_validity_has_ended(
    store: BundleKeeper, signers: Sequence[Any]
) -> None:
    until = clock.now() + timedelta(seconds=0.3)
    content = sign_bundle(make_bundle(5, issued_at=clock.now(), valid_until=until), signers[0])
    store.path.write_bytes(content)
    present = store.read()
    assert present is not None
    store.present = present
    store.start(lambda _: None)
    store.close()
    store.require_usable()
    sleep(0.4)
    with pytest.raises(Unavailable, match="the bundle expired at"):
        store.require_usable()
