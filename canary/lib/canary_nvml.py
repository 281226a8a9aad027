"""Read driver and GPU data from NVML through ctypes; the image needs no package.

Python 3.8 or newer. Names, numbers and structures are those of ``nvml.h``. A value that the driver
or the GPU does not support is None.
"""

import ctypes
import re

LIBRARY = "libnvidia-ml.so.1"
_TEXT = 96
_P2P = {0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system"}
_VOLATILE, _UNCORRECTED = 0, 1
_GPU_SENSOR = 0
_SLOWDOWNS = {0x8: "hardware", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}
_LIMITS = {0x2: "application clocks", 0x4: "power limit", 0x10: "sync boost", **_SLOWDOWNS}
_SM_CLOCK = 1
READ, WRITE, NVLINK = 0, 1, 2
"""Kinds of peer-to-peer access: ``nvmlGpuP2PCapsIndex_t``."""
_XID = 0x8
_NVLINKS = 18


class NoNvml(Exception):
    """Error: NVML is not available: no driver, no GPU in the container, or a mismatch.

    Attributes:
        mismatch: a driver exists, but its kernel module and its library have different versions.
    """

    def __init__(self, message, mismatch=False):
        super().__init__(message)
        self.mismatch = mismatch


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """NVML session that lasts as long as the block."""

    def __enter__(self):
        """Load and initialise.

        Raises:
            NoNvml: NVML is not available; the message says why.
        """
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoNvml(f"no NVIDIA driver here: {error}") from None
        code = self._library.nvmlInit_v2()
        if code:
            words = self._words(code)
            # nvml.h: 18 is NVML_ERROR_LIB_RM_VERSION_MISMATCH
            raise NoNvml(f"NVML does not initialise: {words}", mismatch=code == 18)
        return self

    def __exit__(self, *_):
        """End the session."""
        self._library.nvmlShutdown()

    def driver(self):
        """Return the version of the driver."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda(self):
        """Return the CUDA version that the driver supports, ``12.4``."""
        number = self._int("nvmlSystemGetCudaDriverVersion_v2")
        return None if number is None else f"{number // 1000}.{number % 1000 // 10}"

    def devices(self):
        """Return the handles of the GPUs."""
        return self._handles(self._int("nvmlDeviceGetCount_v2"), "nvmlDeviceGetHandleByIndex_v2")

    def slices(self, device):
        """Return the handles of a GPU's visible MIG devices."""
        most = self._int("nvmlDeviceGetMaxMigDeviceCount", device)
        return self._handles(most, "nvmlDeviceGetMigDeviceHandleByIndex", device)

    def describe(self, device):
        """Describe a GPU or MIG device as in the env line."""
        name = self._text("nvmlDeviceGetName", device) or "?"
        profile = re.search(r" MIG (\S+)", name)
        memory = self._struct("nvmlDeviceGetMemoryInfo", device, _Memory)
        return {
            "name": name,
            "uuid": self._text("nvmlDeviceGetUUID", device),
            "pci": self.pci(device),
            "memory_bytes": memory.total if memory else None,
            "compute_capability": self.capability(device),
            "mig": profile.group(1) if profile else None,
        }

    def pci(self, device):
        """Return the address on the bus, ``00000000:9b:00.0``."""
        info = self._struct("nvmlDeviceGetPciInfo_v3", device, _Pci)
        return info.bus_id.decode("ascii", "replace").lower() if info else None

    def capability(self, device):
        """Return the compute capability, ``8.0``."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        done = self._ask("nvmlDeviceGetCudaComputeCapability", device, major, minor)
        return f"{major.value}.{minor.value}" if done else None

    def mig(self, device):
        """Return whether MIG is on; None if the GPU does not support it."""
        return self._mode("nvmlDeviceGetMigMode", device)

    def ecc(self, device):
        """Return whether ECC is on; None if the GPU does not support it."""
        return self._mode("nvmlDeviceGetEccMode", device)

    def uncorrected(self, device):
        """Return the number of uncorrected ECC errors since the driver was loaded."""
        count = ctypes.c_ulonglong()
        which = ctypes.c_uint(_UNCORRECTED), ctypes.c_uint(_VOLATILE)
        done = self._call("nvmlDeviceGetTotalEccErrors", device, *which, ctypes.byref(count))
        return count.value if done else None

    def temperature(self, device):
        """Return the temperature in degrees Celsius."""
        return self._int("nvmlDeviceGetTemperature", device, _GPU_SENSOR)

    def sm_clock(self, device):
        """Return the clock of the multiprocessors in MHz."""
        return self._int("nvmlDeviceGetClockInfo", device, _SM_CLOCK)

    def power(self, device):
        """Return the power draw in watts."""
        milliwatts = self._int("nvmlDeviceGetPowerUsage", device)
        return None if milliwatts is None else milliwatts / 1000

    def slowdowns(self, device):
        """Return the names of abnormal clock slowdowns; an active power limit is normal."""
        mask = self._reasons(device)
        return mask if mask is None else [word for bit, word in _SLOWDOWNS.items() if mask & bit]

    def limits(self, device):
        """Return the names of everything that holds the clocks down, power limits included."""
        mask = self._reasons(device)
        return mask if mask is None else [word for bit, word in _LIMITS.items() if mask & bit]

    def watch_xids(self):
        """Start to record critical Xid events of every GPU.

        Returns:
            The argument of `xids`, or None if a GPU does not report events.
        """
        events = ctypes.c_void_p()
        if not self._call("nvmlEventSetCreate", ctypes.byref(events)):
            return None
        kinds = ctypes.c_ulonglong(_XID)
        told = [self._call("nvmlDeviceRegisterEvents", d, kinds, events) for d in self.devices()]
        return events if told and all(told) else None

    def xids(self, events):
        """Return the numbers of the Xid events since the last call."""
        found, event = [], _Event()
        while self._call("nvmlEventSetWait_v2", events, ctypes.byref(event), ctypes.c_uint(0)):
            found.append(event.data)
        return found

    def nvlinks(self, device):
        """Return the number of active NVLinks."""
        return sum(self._int("nvmlDeviceGetNvLinkState", device, n) == 1 for n in range(_NVLINKS))

    def nvlink_generation(self, device):
        """Return the version of the first active NVLink, 1 to 5."""
        for link in range(_NVLINKS):
            if self._int("nvmlDeviceGetNvLinkState", device, link) == 1:
                return self._int("nvmlDeviceGetNvLinkVersion", device, link)
        return None

    def reaches(self, one, other, kind):
        """Return whether a GPU reaches another one's memory in a way: `READ`, `NVLINK`."""
        status = self._int("nvmlDeviceGetP2PStatus", one, other, kind)
        return None if status is None else status == 0

    def at(self, pci):
        """Return the handle of the GPU at a bus address; None if there is none."""
        handle = ctypes.c_void_p()
        address = ctypes.c_char_p(pci.encode())
        done = self._call("nvmlDeviceGetHandleByPciBusId_v2", address, ctypes.byref(handle))
        return handle if done else None

    def path(self, one, other):
        """Return the path between two GPUs: ``single`` (a PCIe switch) to ``system`` (sockets)."""
        level = self._int("nvmlDeviceGetTopologyCommonAncestor", one, other)
        return _P2P.get(level, level)

    def _reasons(self, device):
        mask = ctypes.c_ulonglong()
        for word in ("Event", "Throttle"):
            function = f"nvmlDeviceGetCurrentClocks{word}Reasons"
            if self._call(function, device, ctypes.byref(mask)):
                return mask.value
        return None

    def _handles(self, count, function, *before):
        found = []
        for index in range(count or 0):
            handle = ctypes.c_void_p()
            if self._call(function, *before, ctypes.c_uint(index), ctypes.byref(handle)):
                found.append(handle)
        return found

    def _mode(self, function, device):
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        return bool(current.value) if self._ask(function, device, current, pending) else None

    def _int(self, function, *before):
        value = ctypes.c_int()
        numbers = [ctypes.c_uint(b) if isinstance(b, int) else b for b in before]
        return value.value if self._call(function, *numbers, ctypes.byref(value)) else None

    def _text(self, function, *before):
        buffer = ctypes.create_string_buffer(_TEXT)
        done = self._call(function, *before, buffer, ctypes.c_uint(_TEXT))
        return buffer.value.decode("utf-8", "replace") if done else None

    def _struct(self, function, device, kind):
        made = kind()
        return made if self._call(function, device, ctypes.byref(made)) else None

    def _ask(self, function, device, *results):
        return self._call(function, device, *(ctypes.byref(result) for result in results))

    def _call(self, function, *arguments):
        found = getattr(self._library, function, None)
        return found is not None and found(*arguments) == 0

    def _words(self, code):
        try:
            self._library.nvmlErrorString.restype = ctypes.c_char_p
            said = self._library.nvmlErrorString(code)
        except AttributeError:
            said = None
        return f"{said.decode('ascii', 'replace') if said else 'error'} ({code})"


def usable(gpus):
    """Return what ``CUDA_VISIBLE_DEVICES`` calls each GPU, or each MIG slice, of this process.

    Args:
        gpus: as in the env line. CUDA shows a process no more than one slice; NVML has the others.
    """
    if any(gpu.get("mig") for gpu in gpus):
        with Nvml() as nvml:
            slices = [nvml.describe(s)["uuid"] for d in nvml.devices() for s in nvml.slices(d)]
        return [uuid for uuid in slices if uuid]
    return [gpu["uuid"] or str(index) for index, gpu in enumerate(gpus)]
