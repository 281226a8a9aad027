"""The document of ``nvidia-smi -q -x``.

Read with the bare expat parser: entity declarations are refused, the DTD is not fetched, and of
the hundreds of elements only a few are kept.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.report import Device, Report, Slice, mib, stated
from compatgate.errors import BadInput

_OPEN, _CLOSE = "<nvidia_smi_log", "</nvidia_smi_log>"


def parse(text: str) -> Report | None:
    """Read the document; None when there is none in the text.

    Raises:
        BadInput: it is cut off or otherwise not well-formed.
    """
    start = text.find(_OPEN)
    if start < 0:
        return None
    end = text.find(_CLOSE, start)
    document = text[start : end + len(_CLOSE)] if end >= 0 else text[start:]
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise BadInput(
            f"the XML of nvidia-smi is not whole: {error}", hint="run nvidia-smi -q -x again"
        ) from None
    windows = any(model in ("WDDM", "TCC", "MCDM") for model in reader.models)
    return Report(
        "-q -x",
        driver=stated(reader.driver),
        cuda=stated(reader.cuda),
        os="windows" if windows else "linux",
        attached=reader.attached,
        devices=tuple(reader.devices),
    )


class _Reader:
    """Collects the few elements that matter, by their path below the root."""

    def __init__(self) -> None:
        self.driver: str | None = None
        self.cuda: str | None = None
        self.attached: int | None = None
        self.models: list[str | None] = []
        self.devices: list[Device] = []
        self._path: list[str] = []
        self._text: list[str] = []

    def start(self, name: str, attributes: dict[str, Any]) -> None:
        self._path.append(name)
        self._text = []
        if self._path[1:] == ["gpu"]:
            self.devices.append(Device("", bus=str(attributes.get("id", "")).strip('\\"').lower()))
        elif self._path[1:] == ["gpu", "mig_devices", "mig_device"]:
            self._change(slices=(*self.devices[-1].slices, Slice()))

    def data(self, text: str) -> None:
        self._text.append(text)

    def end(self, name: str) -> None:
        path, value = tuple(self._path[1:]), "".join(self._text).strip()
        self._path.pop()
        self._text = []
        if path in (("driver_version",), ("kmd_version",)):
            self.driver = value
        elif path in (("cuda_version",), ("cuda_umd_version",)):
            self.cuda = value
        elif path == ("attached_gpus",) and value.isdecimal():
            self.attached = int(value)
        elif path[:1] == ("gpu",):
            self._device(path[1:], value)

    def _device(self, path: tuple[str, ...], value: str) -> None:
        if path == ("product_name",):
            self._change(name=value)
        elif path == ("uuid",):
            self._change(uuid=stated(value))
        elif path == ("fb_memory_usage", "total"):
            self._change(memory_mib=mib(value))
        elif path == ("mig_mode", "current_mig"):
            self._change(mig=value == "Enabled")
        elif path == ("driver_model", "current_dm"):
            self.models.append(stated(value))
        elif path[:2] == ("mig_devices", "mig_device"):
            self._slice(path[2:], value)

    def _slice(self, path: tuple[str, ...], value: str) -> None:
        *others, last = self.devices[-1].slices
        if path[-1:] == ("copy_engine_count",) and value.isdecimal():
            last = replace(last, engines=int(value))
        elif len(path) == 2 and "fb_memory_usage" in path[0] and path[1] == "total":
            last = replace(last, memory_mib=mib(value))
        else:
            return
        self._change(slices=(*others, last))

    def _change(self, **fields: Any) -> None:
        self.devices[-1] = replace(self.devices[-1], **fields)
