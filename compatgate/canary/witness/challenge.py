"""Challenge a program, and read only the lines that its harness signed.

The worker sends each execution a random challenge. The harness (``canary/lib``, mounted read-only)
numbers, times and signs its lines with it, and answers it with a product of matrices that only this
execution has. Signed lines travel on standard output, because that is the one channel that every
executor has, remote engines and schedulers included. Every other line is log.

    compatgate/1 NUMBER MILLISECONDS SIGNATURE {"type": "metric", ...}

The signature is the HMAC-SHA256 of ``NUMBER MILLISECONDS JSON``.
"""

from __future__ import annotations

import array
import hashlib
import hmac
import re
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from compatgate.canary.protocol.jsonl import LOST_LINE, MAX_LINE, is_protocol_like
from compatgate.canary.run import OutputReader, Report, Witness
from compatgate.canary.workload import Workload

_SIZE = 64
_BYTES = 32
_SIGNED = re.compile(rb"compatgate/1 (\d{1,9}) (\d{1,12}) ([0-9a-f]{64}) (\{.*)", re.DOTALL)
_MARK = b"compatgate/1 "
_HEAD = re.compile(rb"compatgate/1 \d{1,9} \d{1,12} [0-9a-f]{64} (?=\{)")
_SLACK_S, _SLACK = 2.0, 0.02
_MAX_PROBLEMS = 20


def make_challenge() -> str:
    """Return a challenge that nobody has seen."""
    return secrets.token_hex(_BYTES)


def strip_signatures(data: bytes) -> bytes:
    """Return output as people read it: lines of the protocol without their heads."""
    return _HEAD.sub(b"", data)


def compute_answer(challenge: str, by: str) -> str:
    """Return the right answer: the digest of the product of two matrices of the challenge.

    ``python`` or a framework computes it.
    """
    first, second = (
        [raw[at : at + _SIZE] for at in range(0, len(raw), _SIZE)]
        for name in ("a", "b")
        for seed in [bytes.fromhex(challenge) + f"|{by}|{name}".encode()]
        for raw in [hashlib.shake_128(seed).digest(_SIZE * _SIZE)]
    )
    columns = list(zip(*second, strict=True))
    product = array.array("I")
    for row in first:
        product.extend(sum(x * y for x, y in zip(row, column, strict=True)) for column in columns)
    if sys.byteorder == "big":
        product.byteswap()
    return hashlib.sha256(product.tobytes()).hexdigest()


def _sign(challenge: str, signed: bytes) -> str:
    return hmac.new(bytes.fromhex(challenge), signed, hashlib.sha256).hexdigest()


class SignedOutput:
    """Reader of one execution that hands only signed lines of the protocol to another reader.

    ``files`` of the image, path to digest, are those that the program must show.
    """

    def __init__(self, reader: OutputReader, workload: Workload, challenge: str) -> None:
        self._reader = reader
        self._workload = workload
        self._challenge = challenge
        self._began = time.monotonic()
        self._rest = bytearray()
        self._skipping = False
        self._signed = 0
        self._unsigned = 0
        self._broken = 0
        self._proofs: set[str] = set()
        self.files: Mapping[str, str] = {}
        self._shown: dict[str, Any] = {}
        self._problems: list[str] = []
        self._contradictions: list[str] = []

    @property
    def progress(self) -> float | None:
        """Return the share of its work that the program printed last."""
        return self._reader.progress

    def feed(self, data: bytes) -> None:
        """Read the next piece of output."""
        self._rest += data
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            if not self._skipping:
                self._take(line, b"\n")
            self._skipping = False
        if len(self._rest) > 2 * MAX_LINE:
            if not self._skipping:
                self._pass_log(bytes(self._rest), b"\n")
            self._skipping = True
            self._rest.clear()

    def report(self) -> Report:
        """Return the report, with what the signatures show."""
        if self._rest and not self._skipping:
            self._take(bytes(self._rest), b"")
        self._rest.clear()
        report = self._reader.report()
        contradictions = list(self._contradictions)
        if not self._signed and (self._broken or self._unsigned):
            why = "no signature: another program printed them in place of this one"
            if self._broken:
                why = "the signature of another run or of none: they were recorded"
            contradictions.append(f"its lines carry {why}")
        other = [
            f"/{path}"
            for path, digest in sorted(self.files.items())
            if not hmac.compare_digest(
                # The right answer for a file of the image is bound to the challenge.
                _sign(self._challenge, f"{path} {digest.removeprefix('sha256:')}".encode()),
                str(self._shown.get(path)),
            )
        ]
        other_image = ""
        if self._signed and other:
            other_image = "it did not run in the image, where it ran "
            other_image += f"{', '.join(other)} is another file or missing"
        witness = Witness(
            assurance="challenged" if self._signed else "self-reported",
            wall_s=time.monotonic() - self._began,
            signed=self._signed,
            proofs=tuple(sorted(self._proofs)),
            contradictions=tuple(contradictions),
            seen={"image": f"{len(self.files)} of its files"} if self.files else {},
            other_image=other_image,
        )
        problems = (*self._problems[:_MAX_PROBLEMS], *report.problems)
        return msgspec.structs.replace(report, problems=problems, witness=witness)

    def _take(self, line: bytes, end: bytes) -> None:
        at = line.find(_MARK)
        if at < 0:
            self._pass_log(line, end)
            return
        result = _SIGNED.fullmatch(line[at:].removesuffix(b"\r"))
        signed = b" ".join((result[1], result[2], result[4])) if result else b""
        if result is None or not hmac.compare_digest(
            _sign(self._challenge, signed), result[3].decode()
        ):
            self._broken += 1
            self._problems.append("a line of the protocol has a wrong signature")
            self._reader.feed(end)
            return
        if at:
            self._pass_log(line[:at], b"\n")
        self._take_signed(int(result[1]), int(result[2]) / 1000, result[4], end)

    def _take_signed(self, number: int, seconds: float, text: bytes, end: bytes) -> None:
        if number != self._signed + 1:
            self._problems.append(f"line {self._signed + 1} of the harness is followed by {number}")
        self._signed = number
        elapsed = time.monotonic() - self._began
        if seconds > elapsed * (1 + _SLACK) + _SLACK_S:
            self._contradictions.append(
                f"it says that {seconds:.1f} s had passed, and {elapsed:.1f} s had"
            )
        body: Any = None
        with suppress(msgspec.MsgspecError, RecursionError):
            body = msgspec.json.decode(text)
        kind = body.get("type") if isinstance(body, dict) else None
        if kind == "files" and isinstance(body.get("shown"), dict):
            self._shown = body["shown"]
            text = b""
        elif kind == "proof":
            by = str(body.get("by"))
            text = b""
            if by not in self._workload.proofs:
                what = f"it answers the challenge by {by[:40]!r}, which is not known"
                self._problems.append(what)
            elif hmac.compare_digest(compute_answer(self._challenge, by), str(body.get("digest"))):
                self._proofs.add(by)
            else:
                what = f"its product of the worker's matrices, computed by {by}, is wrong"
                self._contradictions.append(what)
        self._reader.feed(text + end)

    def _pass_log(self, line: bytes, end: bytes) -> None:
        """Hand on a line that the harness did not sign; one in the protocol's form is dropped."""
        if line == LOST_LINE.rstrip(b"\n"):
            self._reader.feed(line + b"\n")
        elif is_protocol_like(line):
            self._unsigned += 1
            self._problems.append("a line of the protocol does not carry the run's signature")
            self._reader.feed(end)
        elif self._workload.adapter == "jsonl" and line.lstrip().startswith(b"{"):
            self._reader.feed(end)
        else:
            self._reader.feed(line + end)
