"""What a single message of the kernel says about a GPU or an NVSwitch."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["xid", "sxid", "notice"]
FALLEN_OFF = 79
RM_INIT = "rm-init-failed"


class Sighting(NamedTuple):
    """An error as one line reports it.

    Attributes:
        code: of an Xid or SXid; None for a notice.
        name: of a notice (``rm-init-failed``); else empty.
        device: ``0000:9b:00``, without the function.
        follows: the line says more about an error that another line reports.
        says: ``fatal`` or ``non-fatal`` where the message itself says so.
    """

    kind: Kind
    code: int | None
    device: str
    text: str
    name: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pid: int | None = None
    process: str | None = None
    follows: bool = False
    says: str = ""


_PLACE = r"\(\s*(?P<place>[^()]{1,80}?)\s*\)"
_XID = re.compile(
    rf"\bXid\s*{_PLACE}\s*:\s*(?P<code>\d{{1,6}})\b\s*[,:.]?\s*(?P<rest>.*)", re.IGNORECASE
)
_SXID = re.compile(
    rf"\bSXid\s*{_PLACE}\s*:\s*(?P<code>\d{{1,6}})\b\s*[,:.]?\s*(?P<rest>.*)", re.IGNORECASE
)
_MORE = re.compile(r"(?:Severity \d|Data \{|Data:)", re.IGNORECASE)
_INSTANCE = re.compile(r"\bGPU-I:(\d{1,4})\b")
_COMPUTE = re.compile(r"\bGPU-CI:(\d{1,4})\b")
_PID = re.compile(r"\bpid=(\d{1,10})\b")
_NAME = re.compile(r"\bname=([^,]{1,64})")
_SAYS = re.compile(r"\b(non-?)?fatal\b", re.IGNORECASE)

_ADDRESS = re.compile(
    r"(?:PCI:)?\s*(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?(?=$|[\s,])",
    re.IGNORECASE,
)
# Drivers before R300 print a bus of four digits and a device: "Xid (0003:00)".
_OLD_ADDRESS = re.compile(r"(?:PCI:)?00([0-9a-f]{2}):([0-9a-f]{2})(?=$|[\s,])", re.IGNORECASE)

_OFF_BUS = re.compile(
    r"GPU (?:at )?(?:PCI:)?(?P<place>[0-9a-f:.]{5,16}?):? .*fallen off the bus", re.IGNORECASE
)
_RM_INIT = re.compile(
    r"GPU (?P<place>[0-9a-f:.]{5,16}): (?P<what>RmInitAdapter failed|rm_init_adapter failed)",
    re.IGNORECASE,
)
_AER = re.compile(
    r"\bnvidia (?P<place>[0-9a-f:.]{7,16}): (?:AER: )?(?:.*)PCIe Bus Error: severity="
    r"(?P<severity>Corrected|Uncorrected \((?:Non-)?Fatal\))",
    re.IGNORECASE,
)
_AER_NAMES = {
    "corrected": "aer-corrected",
    "uncorrected (non-fatal)": "aer-nonfatal",
    "uncorrected (fatal)": "aer-fatal",
}


def device_of(place: str) -> str | None:
    """``0000:9b:00`` of any spelling of a PCI address; None where it is none."""
    if match := _ADDRESS.match(place):
        domain = int(match[1] or "0", 16)
        return f"{domain:04x}:{match[2]}:{match[3]}".lower()
    if match := _OLD_ADDRESS.match(place):
        return f"0000:{match[1]}:{match[2]}".lower()
    return None


def sighting(text: str) -> Sighting | None:
    """What a message reports, None where it is not an error of a GPU."""
    if match := _SXID.search(text):
        return _sxid(match)
    if match := _XID.search(text):
        return _xid(match)
    if (match := _RM_INIT.search(text)) and (device := device_of(match["place"])):
        follows = match["what"].startswith("rm_")
        return Sighting("notice", None, device, match[0], name=RM_INIT, follows=follows)
    if (match := _OFF_BUS.search(text)) and (device := device_of(match["place"])):
        return Sighting("xid", FALLEN_OFF, device, match[0], follows=True)
    if (match := _AER.search(text)) and (device := device_of(match["place"])):
        return Sighting("notice", None, device, text, name=_AER_NAMES[match["severity"].lower()])
    return None


def _xid(match: re.Match[str]) -> Sighting | None:
    device = device_of(match["place"])
    if device is None:
        return None
    rest = " ".join(match["rest"].split())
    pid, process = _PID.search(rest), _NAME.search(rest)
    return Sighting(
        "xid",
        int(match["code"]),
        device,
        rest,
        gpu_instance=_numbered(_INSTANCE, match["place"]),
        compute_instance=_numbered(_COMPUTE, match["place"]),
        pid=int(pid[1]) if pid else None,
        process=process[1].strip() if process and process[1] != "<unknown>" else None,
        says=_says(rest),
    )


def _sxid(match: re.Match[str]) -> Sighting | None:
    device = device_of(match["place"])
    if device is None:
        return None
    rest = " ".join(match["rest"].split())
    follows = bool(_MORE.match(rest))
    return Sighting("sxid", int(match["code"]), device, rest, follows=follows, says=_says(rest))


def _numbered(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def _says(text: str) -> str:
    match = _SAYS.search(text)
    return "" if not match else "non-fatal" if match[1] else "fatal"
