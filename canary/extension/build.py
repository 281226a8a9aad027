"""Compile the extension with the image's nvcc, as a build of an application would.

Python 3.8 or newer.
"""

import glob
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "extension.cu")
_TIMEOUT = 240


class DoesNotCompile(Exception):
    """Error: the compiler refused; the message has its first lines."""


def known(nvcc):
    """Return the architectures that this nvcc compiles for: numbers, ``["75", "80", ...]``.

    Raises:
        DoesNotCompile: nvcc cannot list them.
    """
    said = _run([nvcc, "--list-gpu-code"])
    return re.findall(r"^sm_(\d+)\s*$", said, re.MULTILINE)


def wanted(capabilities):
    """Return the architectures of the stack.

    Args:
        capabilities: of the GPUs here, ``["8.0"]``.

    Returns:
        Architectures for machine code, and for PTX; numbers without duplicates.
        ``TORCH_CUDA_ARCH_LIST`` adds those of the image's own extensions.
    """
    stated = re.findall(r"(\d+)\.(\d)(\+PTX)?", os.environ.get("TORCH_CUDA_ARCH_LIST", ""))
    machine = [c.replace(".", "") for c in capabilities] + [a + b for a, b, _ in stated]
    portable = [a + b for a, b, ptx in stated if ptx]
    return sorted(set(machine), key=int), sorted(set(portable), key=int)


def library(nvcc, folder, name, machine, portable):
    """Compile a shared library.

    Args:
        nvcc: path of the compiler.
        folder: folder of the library.
        name: name of the file.
        machine: architectures of the machine code.
        portable: architectures of the PTX.

    Returns:
        Path of the library.

    Raises:
        DoesNotCompile: nvcc refused; the message has the reason.
    """
    target = os.path.join(folder, name)
    codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in machine]
    codes += [f"-gencode=arch=compute_{arch},code=compute_{arch}" for arch in portable]
    # Link the shared runtime of the image, as extensions of frameworks do.
    form = ["-O3", "-shared", "-Xcompiler", "-fPIC", *codes, *_libraries(nvcc)]
    _run([nvcc, *form, SOURCE, "-o", target])
    return target


def _libraries(nvcc):
    """Return options to link this toolkit's shared runtime, known to the loader or not."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    folders = [os.path.join(root, name) for name in ("lib64", "lib")]
    there = [folder for folder in folders if os.path.isdir(folder)]
    found = [part for folder in there for part in (f"-L{folder}", f"-Xlinker=-rpath={folder}")]
    if not any(os.path.exists(os.path.join(folder, "libcudart.so")) for folder in there):
        # Wheels contain the library only under its full name.
        full = sorted(f for at in there for f in glob.glob(os.path.join(at, "libcudart.so.*")))
        if full:
            keep = "-Xlinker=--no-as-needed"  # must come before the objects that need it
            return ["-cudart", "none", keep, f"-Xlinker={full[0]}", *found]
    return ["-cudart", "shared", *found]


def _run(command):
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
    except subprocess.TimeoutExpired:
        raise DoesNotCompile(f"{command[0]} took more than {_TIMEOUT} s") from None
    except OSError as error:
        raise DoesNotCompile(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        said = " / ".join(line for line in done.stdout.splitlines() if line.strip())
        raise DoesNotCompile(f"nvcc ended with {done.returncode}: {said[:600]}")
    return done.stdout
