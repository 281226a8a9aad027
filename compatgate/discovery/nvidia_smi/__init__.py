"""Reads what ``nvidia-smi`` printed, in any of its forms and versions.

The table, ``-q``, ``-q -x``, ``--query-gpu=... --format=csv`` and ``-L`` are recognised by what
they look like; a file may hold several of them, and each supplies what the others lack.
"""

from __future__ import annotations

from compatgate.discovery.nvidia_smi import csv, listing, query, table, xml
from compatgate.discovery.nvidia_smi.failures import explain_failure
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.errors import BadInput, CompatgateError

__all__ = ["Report", "parse_nvidia_smi"]

_FORMS = (xml, query, listing, csv, table)
"""Best witness of product names first: the table cuts them off."""

LONGEST = 16 * 1024 * 1024
"""Characters of the longest output that is read; a host with 16 GPUs prints 2 MB of XML."""


def parse_nvidia_smi(text: str, *, origin: str = "nvidia-smi") -> Report:
    """Read the output of ``nvidia-smi``.

    Args:
        text: everything that it printed, errors included; surrounding text is ignored.
        origin: what to call the text in errors, a file name as a rule.

    Returns:
        The driver, the CUDA version that it reports, and the devices.

    Raises:
        BadInput: nothing was printed, an error was, or it is not output of ``nvidia-smi``.
    """
    if len(text) > LONGEST:
        raise BadInput("is too long to be output of nvidia-smi", field=origin)
    if not text.strip():
        raise BadInput("is empty", field=origin, hint="give the output of nvidia-smi -q")
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    reports = [report for form in _FORMS if (report := form.parse(text)) is not None]
    if not any(report.devices for report in reports):
        raise _nothing_found(text, origin, reports)
    return Report.joined(reports)


def _nothing_found(text: str, origin: str, reports: list[Report]) -> CompatgateError:
    if failure := explain_failure(text):
        return failure.at(origin)
    if reports:
        return BadInput(
            f"this output of nvidia-smi ({reports[0].form}) names no GPU",
            field=origin,
            hint="give the output of plain nvidia-smi, or of nvidia-smi -q without -d",
        )
    return BadInput(
        "is not output of nvidia-smi",
        field=origin,
        hint="give what nvidia-smi, nvidia-smi -q, nvidia-smi -q -x or nvidia-smi -L prints",
    )
