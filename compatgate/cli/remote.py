"""Asking a gate over HTTP, with nothing but the standard library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from compatgate.errors import BadInput, Unavailable
from compatgate.not_json import NOT_JSON

LARGEST_ANSWER = 16 * 1024 * 1024
_NO_DECISION = (408, 425, 429)
"""Client errors that say "not now" rather than "wrong question"."""


class Server:
    """A gate's REST interface.

    Args:
        url: of the gate, with or without ``/api/v1``.
        token: sent as bearer token.
        timeout_s: seconds to wait for the connection and for each part of the answer.
        instead: what to do when there is no answer.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout_s: float = 10.0,
        *,
        instead: str = "--fail-open lets a build pass unchecked",
    ) -> None:
        if not url.startswith(("http://", "https://")) or not url.isprintable() or " " in url:
            raise BadInput(
                f"'{url}' is not a URL", field="--server", hint="like https://gate.example"
            )
        self._base = url.rstrip("/").removesuffix("/api/v1")
        self._token = token
        self._timeout_s = timeout_s
        self._instead = instead

    def post(self, path: str, body: Any) -> dict[str, Any]:
        """POST to ``/api/v1/<path>``.

        Raises:
            BadInput: the gate refuses the request (4xx), with its explanation.
            Unavailable: the gate does not answer, or answers 5xx, or with something else.
        """
        return self._ask(path, msgspec.json.encode(body))

    def get(self, path: str) -> dict[str, Any]:
        """GET ``/api/v1/<path>``; raises as `post`."""
        return self._ask(path, None)

    def lines(self, path: str) -> Iterator[bytes]:
        """The answer to a GET line by line, as it comes; raises as `post`, also in its midst."""
        with self._open(path, None, "text/plain, text/event-stream") as response:
            while line := response.readline(LARGEST_ANSWER):
                yield line

    def address(self, path: str) -> str:
        """The URL of ``/api/v1/<path>``; empty where it would tell a password."""
        return "" if "@" in self._base else f"{self._base}/api/v1/{path}"

    def _ask(self, path: str, data: bytes | None) -> dict[str, Any]:
        with self._open(path, data, "application/json") as response:
            answer = response.read(LARGEST_ANSWER)
        try:
            document = msgspec.json.decode(answer)
        except NOT_JSON:
            document = None
        if not isinstance(document, dict):
            raise self._unavailable("answered with something else than JSON; is it a gate?")
        return document

    @contextmanager
    def _open(self, path: str, data: bytes | None, accept: str) -> Iterator[Any]:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        headers = {"Accept": accept, "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(f"{self._base}/api/v1/{path}", data=data, headers=headers)  # noqa: S310
        try:
            with urlopen(request, timeout=self._timeout_s) as response:  # noqa: S310 - checked above
                yield response
        except HTTPError as error:
            raise self._refused(error.code, error.read(LARGEST_ANSWER)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise self._unavailable(f"does not answer: {reason}") from None

    def _refused(self, status: int, answer: bytes) -> BadInput | Unavailable:
        try:
            problem = msgspec.json.decode(answer)
        except NOT_JSON:
            problem = None
        detail = (
            problem.get("detail") or problem.get("title") if isinstance(problem, dict) else None
        )
        if status >= 500 or status in _NO_DECISION:
            return self._unavailable(f"answered {status}{f': {detail}' if detail else ''}")
        hint = "give an access token with --token or COMPATGATE_TOKEN" if status == 401 else ""
        return BadInput(
            f"{detail or f'the request was refused with status {status}'}",
            field=f"{self._base}",
            hint=hint,
        )

    def _unavailable(self, problem: str) -> Unavailable:
        return Unavailable(f"the gate {problem}", field=self._base, hint=self._instead)
