"""``POST /gate`` over HTTP, from the body to the answer: memory first, threads where it must wait.

What is asked over and over is answered on the event loop: no thread is woken but the one that
commits a batch of decisions. Whatever may wait (the database, a registry, an evaluation) happens in
a thread, by `answer_here`, as it does for an application that is called in a thread anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compatgate.errors import CompatgateError, Unavailable
from compatgate.gate.answers import Decided
from compatgate.gate.decisions import PATIENCE_SECONDS, late
from compatgate.web import headers, problems
from compatgate.web.auth import authenticate, authorize, known_sender
from compatgate.web.body import check_depth
from compatgate.web.route import JSON, PREFIX
from compatgate.web.wsgi import Lane, send_whole

if TYPE_CHECKING:
    from compatgate.gate.auth import Principal
    from compatgate.web.asgi import Send
    from compatgate.web.call import Service

PATH = f"{PREFIX}/gate"
SOURCE = "rest"


def answer_here(question: bytes, sender: Principal, service: Service) -> bytes:
    """Answer a question in this thread.

    Raises:
        CompatgateError: as `compatgate.gate.service.Gate.answer`.
    """
    began = perf_counter()
    check_depth(question, service.settings.max_depth)
    answer = service.gate.answer(question, asked_by=sender.name, source=SOURCE)
    service.metrics.decided(answer.verdict, SOURCE, perf_counter() - began)
    return answer.body


class Asking:
    """Answers questions for a server of ASGI.

    Args:
        service: of the application.
        lane: threads for what may wait.
    """

    def __init__(self, service: Service, lane: Lane) -> None:
        self._service = service
        self._lane = lane
        self._logging = _Logging()

    async def answer(self, fields: Mapping[bytes, bytes], question: bytes, send: Send) -> None:
        """Answer a question, or say why not.

        Args:
            fields: headers of the request, by their names in small letters.
            question: the body.
            send: of the request.
        """
        number = headers.request_id(fields.get(b"x-request-id", b"").decode("latin-1"))
        sender = fields.get(b"authorization")
        environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": PATH}
        environ[headers.ENVIRON] = number
        if sender is not None:
            environ["HTTP_AUTHORIZATION"] = sender.decode("latin-1")
        try:
            body = await self._decide(environ.get("HTTP_AUTHORIZATION"), question)
        except CompatgateError as error:
            found = problems.answer(error, environ)
        except Exception as error:
            found = problems.answer(problems.defect(error, environ), environ)
        else:
            self._service.metrics.requested("POST", "ask", 200)
            await send(_start(body, number))
            await send({"type": "http.response.body", "body": body})
            return
        self._service.metrics.requested("POST", "ask", found.status)
        await send_whole(send, found.status, headers.complete(found.headers, number), found.body)

    async def _decide(self, header: str | None, question: bytes) -> bytes:
        began = perf_counter()
        decided = self._known(header, question)
        if decided is None:
            body: bytes = await self._lane.run(self._in_thread, header, question)
            return body
        await self._logging.wait_for(self._service.gate.submit((decided,)))
        verdict = decided.answer.verdict
        self._service.metrics.decided(verdict, SOURCE, perf_counter() - began)
        return decided.answer.body

    def _known(self, header: str | None, question: bytes) -> Decided | None:
        sender = known_sender(header, self._service)
        if sender is None:
            return None
        authorize(sender, "gate")
        return self._service.gate.known(question, asked_by=sender.name, source=SOURCE)

    def _in_thread(self, header: str | None, question: bytes) -> bytes:
        sender = authenticate(header, self._service)
        authorize(sender, "gate")
        return answer_here(question, sender, self._service)


class _Logging:
    """Wakes those who wait for a batch of decisions, all of them at once."""

    def __init__(self) -> None:
        self._waiting: dict[Future[None], list[asyncio.Future[None]]] = {}

    async def wait_for(self, batch: Future[None]) -> None:
        """Wait until a batch is committed.

        Raises:
            Unavailable: it cannot be, or takes too long.
        """
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            timer = loop.call_later(PATIENCE_SECONDS, self._wake, batch)

            def done(batch: Future[None]) -> None:
                loop.call_soon_threadsafe(timer.cancel)
                loop.call_soon_threadsafe(self._wake, batch)

            batch.add_done_callback(done)
        waiter: asyncio.Future[None] = loop.create_future()
        waiting.append(waiter)
        await waiter

    def _wake(self, batch: Future[None]) -> None:
        error = batch.exception() if batch.done() else late()
        for waiter in self._waiting.pop(batch, ()):
            if waiter.cancelled():
                continue
            if isinstance(error, CompatgateError):
                told = Unavailable(error.problem, field=error.field, hint=error.hint)
                waiter.set_exception(told)
            else:
                waiter.set_result(None)


_FIXED = [
    (name.lower().encode(), value.encode())
    for name, value in [
        ("Content-Type", JSON),
        ("Cache-Control", "no-store"),
        *headers.SECURITY,
        headers.NOTHING_ACTIVE,
    ]
]


def _start(body: bytes, number: str) -> dict[str, Any]:
    """The headers of an answer; those of `headers.complete`, made once."""
    own = [
        (b"content-length", str(len(body)).encode()),
        (headers.REQUEST_ID.lower().encode(), number.encode()),
    ]
    return {"type": "http.response.start", "status": 200, "headers": [*_FIXED, *own]}
