"""Call the CUDA driver API through ctypes; the image needs no package and no CUDA runtime.

Python 3.8 or newer. Names and numbers are those of ``cuda.h``; functions with a suffix are those
that the header's macros name. All calls are about one GPU, in its primary context.
"""

import ctypes
import re

_COUNT, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute: multiprocessors, compute capability
_UUID_BYTES = 16
NOT_FOUND, INVALID_PTX, UNSUPPORTED_PTX_VERSION = 500, 218, 222
LOG_BYTES = 8192
_LOG, _LOG_SIZE = 5, 6  # CUjit_option: error log buffer and its size


class CudaError(Exception):
    """Error of a call.

    Attributes:
        code: value of ``CUresult``.
    """

    def __init__(self, function, code, name, said=""):
        super().__init__(f"{function}: {name} ({code})" + (f": {said}" if said else ""))
        self.code = code


def described():
    """Describe this process's GPUs as in the env line.

    Returns:
        A list, and None or the problem: no library, or CUDA's error.
    """
    try:
        cuda = Cuda()
        return [cuda.describe(index) for index in range(cuda.count())], None
    except OSError as error:
        return [], f"no CUDA driver library: {error}"
    except CudaError as error:
        return [], str(error)


class Cuda:
    """The driver library, initialised.

    Raises:
        OSError: the library does not exist.
        CudaError: CUDA does not initialise.
    """

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, function, *arguments, said=None):
        """Call a function of the driver API.

        Args:
            function: its name.
            arguments: as ctypes takes them.
            said: buffer for the driver's message.

        Raises:
            CudaError: it failed, or this driver does not have the function.
        """
        found = getattr(self._library, function, None)
        if found is None:
            raise CudaError(function, NOT_FOUND, "this driver does not have the function")
        code = found(*arguments)
        if code:
            words = said.value.decode("utf-8", "replace").strip() if said else ""
            raise CudaError(function, code, self._name(code), " ".join(words.split())[:400])

    def version(self):
        """Return the CUDA version that the driver supports, ``(12, 4)``."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value // 1000, number.value % 1000 // 10

    def count(self):
        """Return the number of GPUs of this process."""
        number = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def capability(self, index=0):
        """Return the compute capability, ``(8, 0)``."""
        device = self._device(index)
        return self._attribute(_MAJOR, device), self._attribute(_MINOR, device)

    def describe(self, index):
        """Describe a GPU or MIG device as in the env line."""
        device = self._device(index)
        name, pci = ctypes.create_string_buffer(96), ctypes.create_string_buffer(32)
        memory = ctypes.c_size_t()
        self.call("cuDeviceGetName", name, ctypes.c_int(96), device)
        self.call("cuDeviceGetPCIBusId", pci, ctypes.c_int(32), device)
        self.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        text = name.value.decode("utf-8", "replace")
        profile = re.search(r" MIG (\S+)", text)
        major, minor = self.capability(index)
        return {
            "name": text,
            "uuid": self._uuid(device, mig=profile is not None),
            # NVML writes the domain with eight digits, CUDA with four.
            "pci": pci.value.decode("ascii", "replace").lower().rjust(16, "0"),
            "memory_bytes": memory.value,
            "compute_capability": f"{major}.{minor}",
            "mig": profile.group(1) if profile else None,
        }

    def _uuid(self, device, mig):
        raw = (ctypes.c_ubyte * _UUID_BYTES)()
        try:
            self.call("cuDeviceGetUuid_v2", raw, device)
        except CudaError:
            return None
        text = bytes(raw).hex()
        parts = [text[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
        return ("MIG-" if mig else "GPU-") + "-".join(parts)

    def _device(self, index):
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        return device

    def _attribute(self, which, device):
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), device)
        return value.value

    def _name(self, code):
        text = ctypes.c_char_p()
        known = getattr(self._library, "cuGetErrorName", None)
        if known and known(code, ctypes.byref(text)) == 0 and text.value:
            return text.value.decode("ascii", "replace")
        return "error"


class Gpu(Cuda):
    """One GPU with its primary context current, and a stream.

    Args:
        index: index among this process's GPUs.
    """

    def __init__(self, index=0):
        super().__init__()
        device, context = self._device(index), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.multiprocessors = self._attribute(_COUNT, device)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), ctypes.c_uint(1))  # non-blocking

    def allocate(self, size):
        """Allocate memory on the GPU, and return its address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def allocate_host(self, size):
        """Allocate page-locked memory on the host, and return its address."""
        address = ctypes.c_void_p()
        flags = ctypes.c_uint(0)
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), flags)
        return address

    def free(self, address):
        """Free memory of the GPU."""
        self.call("cuMemFree_v2", address)

    def free_memory(self):
        """Return the free bytes of the GPU."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def upload(self, address, content):
        """Copy bytes to the GPU and wait."""
        self.call("cuMemcpyHtoD_v2", address, content, ctypes.c_size_t(len(content)))

    def download(self, address, size):
        """Copy bytes from the GPU and wait."""
        buffer = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", buffer, address, ctypes.c_size_t(size))
        return buffer.raw

    def load(self, image):
        """Load a module from PTX or a cubin; the driver compiles PTX.

        Args:
            image: bytes of the module.

        Raises:
            CudaError: it cannot be loaded; has the message of the driver's compiler.
        """
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(_LOG, _LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        image = ctypes.create_string_buffer(image)  # ends with the zero that PTX must end with
        rest = ctypes.c_uint(2), options, values
        self.call("cuModuleLoadDataEx", ctypes.byref(module), image, *rest, said=log)
        return module

    def unload(self, module):
        """Unload a module."""
        self.call("cuModuleUnload", module)

    def function(self, module, name):
        """Return a kernel of a module by its name."""
        found = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        return found

    def launch(self, kernel, blocks, threads, *arguments):
        """Start a kernel on the stream; arguments are ctypes values, in the kernel's order."""
        pointers = [ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments]
        values = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        shape = [ctypes.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1, 0)]
        self.call("cuLaunchKernel", kernel, *shape, self.stream, values, None)

    def prepared(self, kernel, blocks, threads, *arguments):
        """Return a function that starts a kernel as `launch` does, in as few steps as possible."""
        pointers = [ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments]
        values = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        shape = [ctypes.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1, 0)]
        function, stream = self._library.cuLaunchKernel, self.stream

        def launch(kept=arguments):  # the pointers are to these
            code = function(kernel, *shape, stream, values, None)
            if code:
                raise CudaError("cuLaunchKernel", code, self._name(code))

        return launch

    def settle(self):
        """Wait until all work on the stream is done."""
        self.call("cuStreamSynchronize", self.stream)


class EventClock:
    """Clock that measures seconds between two events of the driver API on a GPU's stream."""

    def __init__(self, gpu):
        self._gpu = gpu
        self._events = ctypes.c_void_p(), ctypes.c_void_p()
        for event in self._events:
            gpu.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))

    def seconds(self, call, look=None):
        """Time one call; ``look`` is called while the GPU may still work."""
        begin, end = self._events
        self._gpu.call("cuEventRecord", begin, self._gpu.stream)
        call()
        self._gpu.call("cuEventRecord", end, self._gpu.stream)
        if look:
            look()
        self._gpu.call("cuEventSynchronize", end)
        elapsed = ctypes.c_float()
        # Without the suffix, because older drivers lack the _v2 of CUDA 12.8.
        self._gpu.call("cuEventElapsedTime", ctypes.byref(elapsed), begin, end)
        return elapsed.value / 1000.0
