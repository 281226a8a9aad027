"""Survey incidents, and post each that opens or closes to the operator's webhook, signed.

Every process of a server has a thread for each; a slow receiver never blocks a survey. A lease lets
one process survey at a time, and one post; the lease of a process that was killed ends by itself.

The mark ``webhook`` holds the episodes that the receiver knows of. A failed attempt keeps the lease
until the next one, so each event is posted at least once.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from compatgate.errors import BadInput, CompatgateError, quote_error
from compatgate.gate_client import import_httpx
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.http.signatures import HEADER, Secret, read_secrets, sign
from compatgate.service.attention import repository as incidents
from compatgate.service.attention.incidents import IncidentService
from compatgate.service.attention.repository import Incident
from compatgate.service.attention.schemas import IncidentBody

if TYPE_CHECKING:
    import httpx

_TICK_S = 1.0
_AWAY_S = 5.0
_PRUNE_S = 3600.0
_STOP_S = 2.0
_log = logging.getLogger("compatgate.notices")
SCHEMA = "compatgate.dev/incident/v1"
MARK = "webhook"
TIMEOUT_S = 10.0
_LEASE = timedelta(seconds=60)
_FIRST_PAUSE_S = 10
_LONGEST_PAUSE_S = 600


class IncidentWebhook(Struct, frozen=True):
    """The receiver of incidents: its URL and the key that signs what it gets."""

    url: str
    secret: Secret
    public_url: str = ""

    def __repr__(self) -> str:
        """Return the receiver without its path, which may be secret."""
        return f"IncidentWebhook({urlsplit(self.url).hostname!r})"


def read_webhook(url: str, key: str, public_url: str) -> IncidentWebhook:
    """Return the receiver; the key is a file or ``env:VARIABLE``, the public URL is for links."""
    hint = "https://HOST/PATH, without user and password"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    is_text = url.isascii() and url.isprintable() and " " not in url
    if not valid or not is_text or "@" in parts.netloc:
        raise BadInput("is not a URL", field="--incident-webhook", hint=hint)
    (secret,) = read_secrets([f"incidents={key}"], "--incident-webhook-key")
    return IncidentWebhook(url, secret, public_url)


class Posted(Struct, frozen=True):
    """What the receiver knows: the episode of each incident that is open there."""

    episodes: dict[int, int] = {}
    failures: int = 0


class Event(NamedTuple):
    """An incident that opened or closed, and the receiver does not know it."""

    name: str
    incident: IncidentBody


class WebhookSender:
    """Posts the incidents of one database to its receiver."""

    def __init__(self, database: Database, webhook: IncidentWebhook) -> None:
        import_httpx()
        import httpx

        self._database = database
        self._webhook = webhook
        self._client = httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)

    def close(self) -> None:
        """Close the connection to the receiver."""
        self._client.close()

    def send_due(self) -> int:
        """Post every event that is due, until an attempt fails; return the number posted."""
        count = 0
        while (event := self._claim()) is not None:
            if not self._post(event):
                break
            count += 1
        return count

    def _claim(self) -> Event | None:
        """Take the lease and return the next event; None: none is due, or another process posts."""
        now = clock.now()
        with self._database.reading() as session:
            value, _, until = incidents.read_mark(session, MARK)
            posted = msgspec.json.decode(value, type=Posted)
            if (until is not None and until > now) or _find_event(session, posted, now) is None:
                return None
        with self._database.working() as session:
            if not incidents.take_lease(session, MARK, now, now + _LEASE):
                return None
            posted = msgspec.json.decode(incidents.read_mark(session, MARK)[0], type=Posted)
            event = _find_event(session, posted, now)
            if event is None:
                incidents.write_mark(session, MARK, lease_until=now)
            return event

    def _post(self, event: Event) -> bool:
        """Post an event once, store the result, and return whether the receiver accepted it."""
        import httpx

        base = self._webhook.public_url.rstrip("/")
        page = f"{base}/ui/incidents/{event.incident.id}" if base else None
        body = msgspec.json.encode(
            {"schema": SCHEMA, "event": event.name, "incident": event.incident, "url": page}
        )
        parts = urlsplit(self._webhook.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        at = int(clock.now().timestamp())
        headers = {
            "Content-Type": "application/json",
            HEADER: sign(self._webhook.secret.key, at, "POST", path, body),
        }
        try:
            response: httpx.Response = self._client.post(
                self._webhook.url, content=body, headers=headers
            )
            accepted, answer = response.is_success, f"status {response.status_code}"
        except httpx.HTTPError as error:
            accepted, answer = False, type(error).__name__
        if not accepted:
            _log.warning("incident %d was not posted: %s", event.incident.id, answer)
        self._store(event, accepted=accepted)
        return accepted

    def _store(self, event: Event, *, accepted: bool) -> None:
        now, incident = clock.now(), event.incident
        with self._database.working() as session:
            posted = msgspec.json.decode(incidents.lock_mark(session, MARK), type=Posted)
            if accepted:
                episodes = {k: v for k, v in posted.episodes.items() if k != incident.id}
                if event.name == "opened":
                    episodes[incident.id] = incident.episode
                posted, until = Posted(episodes), now
            else:
                posted = Posted(posted.episodes, posted.failures + 1)
                until = now + pause_after(posted.failures)
            value = msgspec.json.encode(posted).decode()
            incidents.write_mark(session, MARK, value=value, at=now, lease_until=until)


def _find_event(session: Session, posted: Posted, now: datetime) -> Event | None:
    """Return the first incident whose state the receiver does not know."""
    columns = (Incident.id, Incident.state, Incident.episode, incidents.is_active(now))
    known = Incident.id.in_(posted.episodes)
    query = select(*columns).where(or_(incidents.is_active(now), known)).order_by(Incident.id)
    for number, state, episode, active in session.execute(query):
        if active and posted.episodes.get(number) != episode:
            return Event("opened", incidents.find_incident(session, number))
        if state != "open":
            return Event("closed", incidents.find_incident(session, number))
    return None


def pause_after(failures: int) -> timedelta:
    """Return the pause after failed attempts: 10 s, 20 s, 40 s, ... up to ten minutes."""
    return timedelta(seconds=min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (max(1, failures) - 1)))


class IncidentWorker:
    """The threads of one process: one surveys, one posts if there is a webhook."""

    def __init__(self, incidents: IncidentService, sender: WebhookSender | None) -> None:
        self._incidents = incidents
        self._sender = sender
        self._ending = threading.Event()
        self._pruned = -_PRUNE_S
        steps: dict[str, Callable[[], object]] = {"survey": self._survey}
        if sender is not None:
            steps["webhook"] = sender.send_due
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(step,), name=f"incidents-{name}", daemon=True
            )
            for name, step in steps.items()
        ]

    def start(self) -> None:
        """Start; surveys of this process are up to its thread from now on."""
        self._incidents.is_watched = True
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop; an incident that is being posted is posted again later."""
        self._ending.set()
        for thread in self._threads:
            thread.join(_STOP_S)
        if self._sender is not None:
            self._sender.close()

    def _survey(self) -> None:
        self._incidents.survey_if_due()
        if time.monotonic() - self._pruned > _PRUNE_S:
            self._pruned = time.monotonic()
            self._incidents.prune()

    def _repeat(self, step: Callable[[], object]) -> None:
        """Repeat a step until the process ends; log an error once while it stays the same."""
        logged = ""
        while not self._ending.is_set():
            problem = ""
            try:
                step()
            except CompatgateError as error:  # the database is away
                problem = error.problem
            except Exception as error:
                problem = f"{type(error).__name__}: {quote_error(error)}"
            if problem and problem != logged:
                _log.warning("incidents wait: %s", problem)
            logged = problem
            pause = _AWAY_S if problem else _TICK_S
            self._ending.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311 - to spread replicas
