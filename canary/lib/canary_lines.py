"""Print the line protocol: JSON lines on standard output.

Needs only Python 3.8. Values that are not finite are printed as ``NaN`` or ``Infinity``, which the
reader reports as a problem: a failed measurement must not disappear.

If the worker started the program, it has sent a challenge. Each line is then numbered, timed and
signed with it, and the ``env`` line is followed by the answer, see `canary_proof`, and by the files
of the image that the worker asked for. Child processes
do not inherit the challenge: a line that another program prints is log.
"""

import hashlib
import hmac
import json
import os
import sys
import threading
import time

import canary_proof

_BEGAN = time.monotonic()
_CHALLENGE = bytes.fromhex(os.environ.pop("COMPATGATE_CHALLENGE", ""))
_FILES = [path for path in os.environ.pop("COMPATGATE_FILES", "").split(":") if path]
_LOCK = threading.Lock()
_printed = 0


def env(driver=None, gpus=(), versions=None, paths=None, **other):
    """Report the loaded components; must be the first line.

    Args:
        driver: version of the kernel driver, None without a driver.
        gpus: objects with ``name`` and, if known, ``uuid``, ``pci``, ``memory_bytes``,
            ``compute_capability``
            and ``mig``.
        versions: component to version, as loaded in this process.
        paths: component to the file it was loaded from.
        other: further data to store.
    """
    line("env", driver=driver, gpus=list(gpus), versions=versions or {}, paths=paths or {}, **other)
    proof("python", canary_proof.multiply)
    if _CHALLENGE and _FILES:
        line("files", shown={path: canary_proof.show_file(_CHALLENGE, path) for path in _FILES})


def metric(name, unit, values, warmup=()):
    """Report values of a metric in the order measured; repeated calls append."""
    line("metric", name=name, unit=unit, values=list(values), warmup=list(warmup))


def check(name, ok, message=""):
    """Report whether a check passed."""
    line("check", name=name, ok=bool(ok), message=message)


def skip(name, why):
    """Report that a check does not apply here: it neither passes nor fails."""
    line("check", name=name, ok=True, skipped=True, message=why)


def progress(value):
    """Report the program's progress, 0 to 1."""
    line("progress", value=value)


def proof(by, multiply):
    """Answer the worker's challenge; nothing is printed if there is none.

    Args:
        by: what computes the answer, ``python`` or a framework.
        multiply: function of two square matrices (lists of rows) that returns their product.
    """
    if _CHALLENGE:
        line("proof", by=by, digest=canary_proof.answer(_CHALLENGE, by, multiply))


def line(kind, **members):
    """Print one whole line of the protocol, and flush."""
    global _printed
    text = json.dumps({"type": kind, **members})
    with _LOCK:
        if _CHALLENGE:
            _printed += 1
            head = f"{_printed} {int((time.monotonic() - _BEGAN) * 1000)}"
            text = f"compatgate/1 {head} {_sign(head, text)} {text}"
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _sign(head, text):
    signed = f"{head} {text}".encode()
    return hmac.new(_CHALLENGE, signed, hashlib.sha256).hexdigest()
