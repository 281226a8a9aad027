"""Compile PTX with the stack's own toolkit: NVRTC if the image has it, else nvcc.

Python 3.8 or newer. The version of the toolkit that wrote PTX decides whether a driver accepts it,
so hand-written PTX of an old version proves nothing about a stack.
"""

import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

_TIMEOUT = 120
_SONAMES = (
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so.11.2",  # of 11.2 and all later ones
    "libnvrtc.so.11.1",
    "libnvrtc.so.11.0",
    "libnvrtc.so",
)
_IN_PACKAGES = ("nvidia/*/lib/libnvrtc*.so*", "torch/lib/libnvrtc*.so*")
_IN_TOOLKITS = ("lib64/libnvrtc.so*", "lib/libnvrtc.so*", "targets/*/lib/libnvrtc.so*")
_TOOLKIT_FOLDERS = ("/usr/local/cuda", "/usr/local/cuda-*", sys.prefix)
_NO_COMPILER = re.compile(r"builtins|\.alt\.|static")
_INVALID_OPTION = 5  # nvrtcResult


class CannotMake(Exception):
    """Error: this compiler makes no PTX for this GPU; the message says why."""


def needed():
    """Return whether the stack under test needs PTX on this GPU.

    Returns:
        True or False, from the stated stack's code (``COMPATGATE_NEEDS_PTX``); None if not stated.
    """
    return {"yes": True, "no": False}.get(os.environ.get("COMPATGATE_NEEDS_PTX", ""))


def isa_of(text):
    """Read the PTX ISA version that a text is written in, ``8.4``; ``?`` where it has none."""
    found = re.search(rb"^\s*\.version\s+(\d+\.\d+)", text, re.MULTILINE)
    return found.group(1).decode() if found else "?"


def compilers():
    """Find the PTX compilers of this image: each version of NVRTC, else nvcc; [] if none."""
    found = {}
    for path in _libraries():
        try:
            made = Nvrtc(path)
        except (OSError, AttributeError, CannotMake):
            continue  # of another machine, or incomplete: it cannot compile
        found.setdefault(made.version, made)
    if found:
        return [found[version] for version in sorted(found)]
    path = nvcc()
    return [Nvcc(path)] if path else []


def nvcc():
    """Find nvcc: what ``CUDACXX`` names, else on the path, in ``CUDA_HOME``, or the usual place.

    Returns:
        Its path; None if there is none.
    """
    named = os.environ.get("CUDACXX")
    if named:
        return shutil.which(named)
    homes = [*_homes(), "/usr/local/cuda"]
    folders = os.pathsep.join(os.path.join(home, "bin") for home in homes)
    return shutil.which("nvcc") or shutil.which("nvcc", path=folders)


class Nvrtc:
    """NVRTC through ctypes; names and numbers are those of ``nvrtc.h``.

    Attributes:
        version: ``(12, 4)``.
        name: for messages.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is not NVRTC.
        CannotMake: it does not state its version.
    """

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value
        self.name = "NVRTC {}.{}".format(*self.version)

    def ptx(self, source, capability):
        """Compile CUDA C++ to PTX for a GPU.

        Args:
            source: text without includes.
            capability: of the GPU, ``(8, 0)``; the PTX is for it, or for the newest known below it.

        Returns:
            Bytes of the PTX.

        Raises:
            CannotMake: the GPU is not supported, or the source does not compile.
        """
        program = ctypes.c_void_p()
        create = ctypes.byref(program), source.encode(), b"canary.cu", 0, None, None
        self._call("nvrtcCreateProgram", *create)
        try:
            arch = nearest(self._known(), capability, self.name)
            options = (ctypes.c_char_p * 1)(f"--gpu-architecture=compute_{arch}".encode())
            self._call("nvrtcCompileProgram", program, 1, options, program=program)
            return self._text("nvrtcGetPTXSize", "nvrtcGetPTX", program)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _known(self):
        """Return the supported architectures; None before CUDA 11.2, which cannot list them."""
        if not hasattr(self._library, "nvrtcGetSupportedArchs"):
            return None
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return list(numbers)

    def _text(self, size_of, text_of, program):
        size = ctypes.c_size_t()
        self._call(size_of, program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(text_of, program, text)
        return text.value

    def _call(self, function, *arguments, program=None):
        code = getattr(self._library, function)(*arguments)
        if not code:
            return
        said = f"{function} gave {code}"
        if program is not None and code != _INVALID_OPTION:
            log = self._text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program)
            said += ": " + " ".join(log.decode("utf-8", "replace").split())[:400]
        raise CannotMake(said)


class Nvcc:
    """nvcc; attributes as in `Nvrtc`; the version is None if nvcc does not state it."""

    def __init__(self, path):
        self._path = path
        self.version, self.name = None, "nvcc"
        try:
            found = re.search(r"release (\d+)\.(\d+)", self._run("--version"))
        except CannotMake:
            found = None
        if found:
            self.version = int(found.group(1)), int(found.group(2))
            self.name = "nvcc {}.{}".format(*self.version)

    def ptx(self, source, capability):
        """Compile CUDA C++ to PTX for a GPU; see `Nvrtc.ptx`."""
        try:
            listed = re.findall(r"^compute_(\d+)\s*$", self._run("--list-gpu-arch"), re.MULTILINE)
        except CannotMake:
            listed = []  # before CUDA 11, nvcc cannot list them
        arch = nearest([int(number) for number in listed] or None, capability, self.name)
        with tempfile.TemporaryDirectory() as folder:
            text, made = os.path.join(folder, "canary.cu"), os.path.join(folder, "canary.ptx")
            with open(text, "w", encoding="utf-8") as file:
                file.write(source)
            self._run("-ptx", f"-arch=compute_{arch}", text, "-o", made)
            with open(made, "rb") as file:
                return file.read()

    def _run(self, *arguments):
        command = [self._path, *arguments]
        try:
            done = subprocess.run(  # noqa: S603
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotMake(str(error)) from None
        if done.returncode:
            raise CannotMake(" ".join(done.stdout.split())[:400])
        return done.stdout


def nearest(known, capability, name):
    """Choose the architecture for a GPU: its own, else the newest below it.

    Args:
        known: numbers that a compiler knows, 80 for 8.0; None if it cannot list them.
        capability: of the GPU.
        name: of the compiler.

    Raises:
        CannotMake: all are newer than the GPU.
    """
    own = capability[0] * 10 + capability[1]
    if known is None:
        return own
    below = [number for number in known if number <= own]
    if not below:
        oldest = min(known, default="?")
        raise CannotMake(f"{name} makes no PTX for compute_{own}, only from compute_{oldest} on")
    return max(below)


def _homes():
    return [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]


def _libraries():
    """Return possible paths of NVRTC: from the loader, wheels and toolkits."""
    patterns = [os.path.join(at, part) for at in sys.path if at for part in _IN_PACKAGES]
    patterns += [
        os.path.join(at, part) for at in (*_homes(), *_TOOLKIT_FOLDERS) for part in _IN_TOOLKITS
    ]
    files = {os.path.realpath(path): None for part in patterns for path in sorted(glob.glob(part))}
    named = [path for path in files if not _NO_COMPILER.search(os.path.basename(path))]
    return [*_SONAMES, *named]
