"""Read driver data from the kernel and the CUDA driver library alone. Python 3.8 or newer."""

import ctypes
import re

_KERNEL = "/proc/driver/nvidia/version"


def kernel_module():
    """Return the version of the driver's kernel module; None if it is not loaded or not shown."""
    try:
        with open(_KERNEL, encoding="utf-8", errors="replace") as file:
            text = file.read(4096)
    except OSError:
        return None
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found.group(1) if found else None


def cuda_devices():
    """Count the GPUs that CUDA gives this process.

    Returns:
        The number, and None or the problem: no library, or the name of CUDA's error.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, f"no CUDA driver library: {error}"
    count = ctypes.c_int()
    code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if not code:
        return count.value, None
    name = ctypes.c_char_p()
    known = getattr(cuda, "cuGetErrorName", None)
    if known and known(code, ctypes.byref(name)) == 0 and name.value:
        return 0, f"{name.value.decode('ascii', 'replace')} ({code})"
    return 0, f"error {code}"
