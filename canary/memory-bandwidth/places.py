"""Provide two device buffers and two host buffers, and the copies between them.

A place has ``outgoing`` and ``incoming`` (addresses of the host), ``upload`` (outgoing to the first
buffer), ``copy`` (first to second), ``fill`` (the second), ``download`` (second to incoming),
``settle`` (wait) and ``clock``. Python 3.8 or newer.
"""

import ctypes

import canary_cuda
import canary_timing

FILL = 0xA5C3F00D
"""A word with ones and zeros in every byte."""


class Gpu:
    """Memory of the GPU, and page-locked memory of the host, through the driver API."""

    def __init__(self, size):
        self._gpu = canary_cuda.Gpu()
        self._size = ctypes.c_size_t(size)
        self._first, self._second = (self._gpu.allocate(size) for _ in range(2))
        self._out, self._in = (self._gpu.allocate_host(size) for _ in range(2))
        self.outgoing, self.incoming = self._out.value, self._in.value
        self.clock = canary_cuda.EventClock(self._gpu)
        self.settle = self._gpu.settle

    def upload(self):
        """Copy over the bus to the GPU."""
        self._copy("cuMemcpyHtoDAsync_v2", self._first, self._out)

    def copy(self):
        """Copy within the GPU's memory."""
        self._copy("cuMemcpyDtoDAsync_v2", self._second, self._first)

    def download(self):
        """Copy over the bus from the GPU."""
        self._copy("cuMemcpyDtoHAsync_v2", self._in, self._second)

    def fill(self):
        """Fill the second buffer with a word."""
        words = ctypes.c_size_t(self._size.value >> 2)
        value = ctypes.c_uint(FILL)
        self._gpu.call("cuMemsetD32Async", self._second, value, words, self._gpu.stream)

    def _copy(self, function, to, source):
        self._gpu.call(function, to, source, self._size, self._gpu.stream)


class Host:
    """The same buffers in the host's memory, for development."""

    def __init__(self, size):
        self._size = size
        self._buffers = [ctypes.create_string_buffer(size) for _ in range(4)]
        self.outgoing, self._first, self._second, self.incoming = map(
            ctypes.addressof, self._buffers
        )
        self._pattern = FILL.to_bytes(4, "little") * (size >> 2)
        self.clock = canary_timing.WallClock()

    def upload(self):
        """Copy the outgoing memory to the first buffer."""
        ctypes.memmove(self._first, self.outgoing, self._size)

    def copy(self):
        """Copy the first buffer to the second."""
        ctypes.memmove(self._second, self._first, self._size)

    def download(self):
        """Copy the second buffer to the incoming memory."""
        ctypes.memmove(self.incoming, self._second, self._size)

    def fill(self):
        """Fill the second buffer with a word."""
        ctypes.memmove(self._second, self._pattern, self._size)

    def settle(self):
        """Do nothing: copies on the host are synchronous."""
