"""The line protocol for programs: JSON lines on standard output.

Needs nothing but Python 3.8. What is not finite is printed as ``NaN`` or ``Infinity``, which the
reader refuses with that name: a value that could not be measured must not vanish.
"""

import json
import sys


def env(driver=None, gpus=(), versions=None, paths=None, **other):
    """Say what is really loaded; must be the first line.

    Args:
        driver: version of the kernel driver, None where there is none.
        gpus: objects with ``name`` and, where known, ``uuid``, ``pci``, ``memory_bytes``,
            ``compute_capability`` and ``mig``.
        versions: component to version, of what is loaded in this process.
        paths: component to the file it was loaded from.
        other: anything else that is worth keeping.
    """
    line("env", driver=driver, gpus=list(gpus), versions=versions or {}, paths=paths or {}, **other)


def metric(name, unit, values, warmup=()):
    """Report values of a metric in the order measured; repeated calls append."""
    line("metric", name=name, unit=unit, values=list(values), warmup=list(warmup))


def check(name, ok, message=""):
    """Report that something holds, or does not."""
    line("check", name=name, ok=bool(ok), message=message)


def skip(name, why):
    """Report that a check does not apply here: it neither passes nor fails."""
    line("check", name=name, ok=True, skipped=True, message=why)


def progress(value):
    """Say how far the program is, 0 to 1."""
    line("progress", value=value)


def line(kind, **members):
    """Print one line of the protocol, at once and whole."""
    sys.stdout.write(json.dumps({"type": kind, **members}) + "\n")
    sys.stdout.flush()
