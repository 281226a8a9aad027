"""Ask another Python environment for its frameworks, inside that environment.

The program at the end runs in that environment's interpreter: it needs Python 3.8, imports no
module of compatgate, and imports the environment's torch.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from threading import Timer
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import COMPONENTS, is_framework
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES, Packages
from compatgate.core.facts.records import Record
from compatgate.core.stack_facts import CONDA
from compatgate.discovery.lockfiles import stack_components
from compatgate.discovery.lockfiles.interface import ListedPackage
from compatgate.discovery.lockfiles.stack_components import find_gpu_packages
from compatgate.discovery.observations import Observation
from compatgate.errors import BadInput
from compatgate.strict_json import DECODE_ERRORS

if TYPE_CHECKING:
    from compatgate.discovery.findings import Findings

TIMEOUT_S = 120.0
MAX_FOLDERS = 16
"""Most folders of packages that are read for one interpreter."""
LARGEST_ANSWER = 4 * 1024 * 1024
"""Bytes of the largest accepted answer; a thousand packages take 50 kB."""


ANSWER_MARK = b"compatgate-answer:"
PROGRAM = """\
import json, re, sys
answer = {"python": "%d.%d.%d" % sys.version_info[:3], "packages": {}, "conda": [], "torch": None,
          "notes": [], "places": []}
try:
    import sysconfig
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        answer["python"] += "t"
    from importlib import metadata
    for found in metadata.distributions():
        name = found.metadata["Name"]
        if name:
            name = re.sub("[-_.]+", "-", name).lower()
            answer["packages"].setdefault(name, found.version)
            place = str(found.locate_file(""))
            if place not in answer["places"]:
                answer["places"].append(place)
            if (found.read_text("INSTALLER") or "").strip() == "conda":
                answer["conda"].append(name)
except Exception as error:
    answer["notes"].append("package metadata cannot be read: %s" % error)

def ask(what, question):
    try:
        return question()
    except Exception as error:
        answer["notes"].append("%s cannot be asked: %s" % (what, error))

def loaded():
    import torch
    found = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.version.cuda:
        found["cudnn"] = ask("cuDNN", torch.backends.cudnn.version)
        nccl = ask("NCCL", torch.cuda.nccl.version)
        found["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else nccl
        found["arch"] = ask("GPU code", lambda: (torch._C._cuda_getArchFlags() or "").split())
    return found

if "torch" in answer["packages"]:
    answer["torch"] = ask("torch", loaded)
sys.stdout.flush()
print("\\ncompatgate-answer:\\n" + json.dumps(answer))
"""
"""Prints the mark and one line of JSON; for ``python -c``."""


class Environment(Struct, frozen=True):
    """The frameworks and packages of an interpreter, versions of loaded libraries first.

    ``arch`` is the GPU code of its PyTorch; None without it, or where the files show the code.
    """

    observations: tuple[Observation, ...]
    arch: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    measured: dict[str, Record] = {}


def ask_python(
    python: str, known: Packages, facts: CudaArch | None = None, *, timeout_s: float = TIMEOUT_S
) -> Environment:
    """Ask an interpreter for its frameworks, and read the files of its packages.

    ``python`` is a path, an environment's folder, or a name on ``PATH``; importing torch takes
    several seconds.
    """
    answer = _run(_interpreter(python), timeout_s)
    try:
        document = msgspec.json.decode(answer[answer.rfind(ANSWER_MARK) :].partition(b"\n")[2])
    except DECODE_ERRORS:
        document = None
    if ANSWER_MARK not in answer or not isinstance(document, dict):
        raise _interpreter_error(python, "did not answer like a Python interpreter")
    files = _read_folders(document.get("places"), known, facts)
    if files is None:
        return read_answer(document, python, known)
    return _add_files(read_answer(document, python, NO_KNOWN_PACKAGES), files, python)


def _read_folders(places: Any, known: Packages, facts: CudaArch | None) -> Findings | None:
    """Read the package folders of an interpreter; None where none can be read."""
    from compatgate.discovery.local import find_in_folder

    names = places if isinstance(places, list) else []
    real = dict.fromkeys(os.path.realpath(n) for n in names if isinstance(n, str) and n)
    found = [
        find_in_folder(place, known, facts)
        for place in list(real)[:MAX_FOLDERS]
        if os.path.isdir(place) and os.path.basename(place).endswith("-packages")
    ]
    for more in found[1:]:
        found[0].extend(more)
    return found[0] if found else None


def _add_files(answer: Environment, files: Findings, python: str) -> Environment:
    asked = {observation.component for observation in answer.observations}
    packages = [
        replace(observation, origin=f"{python}: package {observation.component}")
        for observation in files.observations
        if observation.component not in asked and observation.component not in COMPONENTS
    ]
    return Environment(
        (*answer.observations, *packages),
        arch=None if "torch" in files.measured else answer.arch,
        notes=(*answer.notes, *(f"{python}: {text}" for text in files.open)),
        measured=files.measured,
    )


def read_answer(document: dict[str, Any], python: str, known: Packages) -> Environment:
    """Read the answer of `PROGRAM`.

    It is ``{"python", "packages": {name: version}, "conda": [name], "torch", "notes"}`` with
    normalised names; ``conda`` lists packages that conda installed.
    """
    origin = f"{python}: torch"
    torch: dict[str, Any] = document.get("torch") or {}
    measured = [
        Observation(component, str(torch[key]), f"{origin}.{attribute}")
        for component, key, attribute in (
            ("torch", "version", "__version__"),
            ("cuda", "cuda", "version.cuda"),
            ("cudnn", "cudnn", "backends.cudnn.version()"),
            ("nccl", "nccl", "cuda.nccl.version()"),
        )
        if torch.get(key)
    ]
    measured.append(Observation("python", str(document.get("python")), python))
    packages: dict[str, str] = document.get("packages") or {}
    installed = [
        ListedPackage(name, f"{python}: package {name}", version=v)
        for name, v in packages.items()
        if v is None or isinstance(v, str)
    ]
    stated = stack_components.observe_pypi(installed, ())
    gpu = find_gpu_packages(installed, known)
    arch = torch.get("arch")
    notes = [f"{python}: {note}" for note in document.get("notes") or ()]
    conda = frozenset(document.get("conda") or ())
    observations = [*measured, *stated.observations, *gpu.observations]
    for place, seen in enumerate(observations):  # conda's frameworks are other builds than PyPI's
        component, cuda = seen.component, torch.get("cuda")
        if is_framework(component) and "+" not in seen.version and component in conda:
            label = f".cu{cuda.replace('.', '')}" if cuda and component == "torch" else ""
            observations[place] = replace(seen, version=f"{seen.version}+{CONDA}{label}")
    return Environment(
        tuple(observations),
        arch=tuple(arch) if arch else None,
        notes=(*notes, *stated.open, *gpu.open),
    )


def _interpreter(python: str) -> str:
    for path in (os.path.join(python, "bin", "python"), python):
        if os.path.isfile(path):
            return os.path.abspath(path)
    program = shutil.which(python)
    if not program:
        raise _interpreter_error(python, "was not found", "name its path, like /opt/env/bin/python")
    return program


def _run(interpreter: str, timeout_s: float) -> bytes:
    """Return the program's output, cut at a limit; kill the process group at the time limit."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user named the interpreter
                [interpreter, "-c", PROGRAM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=os.sep,
                start_new_session=True,
            )
        except OSError as error:
            raise _interpreter_error(interpreter, f"cannot be run: {error.strerror}") from None
        timer = Timer(timeout_s, _kill_group, [process])
        timer.start()
        try:
            assert process.stdout is not None  # noqa: S101 - piped above
            answer = process.stdout.read(LARGEST_ANSWER)
            process.stdout.close()
            status = process.wait()
        finally:
            late = not timer.is_alive()
            timer.cancel()
            _kill_group(process)
        if late:
            raise _interpreter_error(interpreter, f"did not answer within {timeout_s:g} seconds")
        if status:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
            last = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise _interpreter_error(
                interpreter, f"failed: {last[-1] if last else f'exit status {status}'}"
            )
    return answer


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _interpreter_error(python: str, problem: str, hint: str = "") -> BadInput:
    return BadInput(f"'{python}' {problem}", field="python", value=python, hint=hint)
