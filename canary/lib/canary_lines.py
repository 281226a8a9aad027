"""Print the line protocol: JSON lines on standard output.

Needs only Python 3.8. Values that are not finite are printed as ``NaN`` or ``Infinity``, which the
reader reports as a problem: a failed measurement must not disappear.
"""

import json
import sys


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


def line(kind, **members):
    """Print one whole line of the protocol, and flush."""
    sys.stdout.write(json.dumps({"type": kind, **members}) + "\n")
    sys.stdout.flush()
