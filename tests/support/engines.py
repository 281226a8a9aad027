"""Docker engines of the tests' own, and an image made of the running interpreter."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

from docker import APIClient

PYTHON = "compatgate-test/python:1"
_HOOK = "nvidia-container-runtime-hook"
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "lib2to3",
             "tkinter", "pydoc_data", "__pycache__"}  # fmt: skip


@dataclass
class Engine:
    """A ``dockerd`` with storage, sockets and containers apart from any other on the machine.

    Attributes:
        gpus: a hook that does nothing stands where NVIDIA's would, so that the engine takes
            requests for GPUs. There is still none.
        options: more arguments of the program.
    """

    folder: Path
    gpus: bool = False
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    _clients: list[APIClient] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"unix://{self.folder}/engine.sock"

    @property
    def api(self) -> APIClient:
        if not self._clients:
            self._clients.append(APIClient(self.endpoint, version="auto", timeout=60))
        return self._clients[0]

    def start(self) -> None:
        path = os.environ["PATH"]
        if self.gpus:
            hooks = self.folder / "hooks"
            hooks.mkdir(exist_ok=True)
            (hooks / _HOOK).write_text("#!/bin/sh\nexit 0\n")
            (hooks / _HOOK).chmod(0o755)
            path = f"{hooks}:{path}"
        command = [
            "dockerd", "--data-root", self.folder / "data", "--exec-root", self.folder / "exec",
            "--pidfile", self.folder / "pid", "--host", self.endpoint, "--bridge=none",
            "--iptables=false", "--ip-forward=false", "--shutdown-timeout=3",
            "--containerd-namespace", self.folder.name,
            "--containerd-plugins-namespace", f"{self.folder.name}-plugins", *self.options,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, env={**os.environ, "PATH": path}
            )
        self._await()

    def kill(self) -> None:
        """As a crash of the engine."""
        assert self.process
        self.process.kill()
        self.process.wait()
        _kill_mentioning(f"{self.folder}/exec/containerd/containerd.toml")
        # Where nobody reaps it, dockerd takes the dead containerd for a living one.
        (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def restart(self) -> None:
        """As an upgrade of the engine's package."""
        self.stop()
        self.start()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def remove(self) -> None:
        """End everything that the engine started, and remove its folder."""
        with suppress(Exception):
            for container in self.api.containers(all=True):
                self.api.remove_container(container["Id"], force=True, v=True)
        self.stop()
        _kill_mentioning(str(self.folder))
        _kill_mentioning(self.folder.name)
        for mount in _mounts_below(self.folder):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def left_of(self, run: str) -> list[str]:
        """Names of everything that carries the label of a run."""
        mine = {"label": f"dev.compatgate.run={run}"}
        return [
            *(c["Names"][0] for c in self.api.containers(all=True, filters=mine)),
            *(v["Name"] for v in self.api.volumes(filters=mine)["Volumes"] or []),
            *(i["Id"] for i in self.api.images(all=True, filters=mine)),
        ]

    def everything(self) -> tuple[set[str], set[str], set[str]]:
        """Containers, volumes and images, whoever made them."""
        return (
            {c["Id"] for c in self.api.containers(all=True)},
            {v["Name"] for v in self.api.volumes()["Volumes"] or []},
            {i["Id"] for i in self.api.images(all=True)},
        )

    def _await(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process
            if self.process.poll() is not None:
                break
            with suppress(Exception):
                self.api.ping()
                return
            time.sleep(0.1)
        raise RuntimeError(f"dockerd did not start:\n{(self.folder / 'log').read_text()[-3000:]}")


def missing() -> str:
    """Why no engine can be started here; empty where one can."""
    if os.getuid() != 0:
        return "an engine of the tests' own needs root"
    lacking = [name for name in ("dockerd", "busybox") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (docker.io, busybox-static)" if lacking else ""


@contextmanager
def engine(
    *, gpus: bool = False, options: tuple[str, ...] = (), in_memory: bool = False
) -> Iterator[Engine]:
    """A running engine that has the Python image; where there is room, large images in memory."""
    shared = Path("/dev/shm")
    roomy = in_memory and shared.is_dir() and shutil.disk_usage(shared).free > 4 << 30
    # The name is also that of a namespace in containerd, which takes no underscore at its end.
    parent = shared if roomy else Path(tempfile.gettempdir())
    folder = parent / f"compatgate-engine-{token_hex(6)}"
    folder.mkdir(mode=0o700)
    made = Engine(folder, gpus, options)
    try:
        made.start()
        load_python(made.api)
        yield made
    finally:
        made.remove()


def load_python(
    api: Any, repository: str = PYTHON.partition(":")[0], changes: Sequence[str] = ()
) -> None:
    """Import an image with Python's standard library and a static busybox."""
    api.import_image_from_data(
        _python_tar(),
        repository=repository,
        tag=PYTHON.partition(":")[2],
        changes=["ENV PATH=/usr/local/bin:/bin", *changes],
    )


def vary_python(api: Any, name: str, **environment: str) -> None:
    """Make an image of the Python image with other variables."""
    container = api.create_container(PYTHON, ["true"])["Id"]
    repository, _, tag = name.partition(":")
    changes = "\n".join(f"ENV {key}={json.dumps(value)}" for key, value in environment.items())
    api.commit(container, repository=repository, tag=tag, changes=changes)
    api.remove_container(container, v=True)


def import_scripts(api: Any, name: str, files: dict[str, str], changes: Sequence[str] = ()) -> str:
    """Import an image of a static busybox and some executable files, without Python; its name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        tar.add(shutil.which("busybox") or "", "bin/busybox")
        for link in ("sh", "sleep", "printf"):
            member = tarfile.TarInfo(f"bin/{link}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(member)
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.mode, member.size = 0o755, len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    api.import_image_from_data(
        buffer.getvalue(), repository=name, tag="1", changes=["ENV PATH=/bin", *changes]
    )
    return f"{name}:1"


@lru_cache(maxsize=1)
def _python_tar() -> bytes:
    """The interpreter that runs this, below ``/usr/local``, with the libraries it links."""
    buffer = io.BytesIO()
    binary = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}").resolve()
    library = Path(sysconfig.get_paths()["stdlib"])
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        tar.add(binary, "usr/local/bin/python3")
        tar.add(library, f"usr/local/lib/{library.name}", filter=_slim)
        for linked in sorted(linked_files([binary, *library.glob("lib-dynload/*.so")])):
            tar.add(linked, place_of(linked))
        busybox = shutil.which("busybox") or ""
        tar.add(busybox, "bin/busybox")
        for name in ("sh", "sleep", "cat", "true"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for folder in ("tmp", "etc", "proc", "sys", "dev"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(member)
    return buffer.getvalue()


def _slim(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(member.name.split("/"))
    if parts & _LEFT_OUT or any(part.startswith("config-") for part in parts):
        return None
    member.uid = member.gid = 0
    member.mode |= 0o444
    return member


def linked_files(files: list[Path]) -> set[str]:
    """Libraries that programs and modules link, as the loader of this machine finds them."""
    found: set[str] = set()
    if not files:
        return found
    listed = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        path = line.partition("=>")[2] or line
        path = path.split("(")[0].strip()
        if path.startswith("/") and not path.endswith(":"):  # a colon ends the name of the file
            found.add(path)
    return found


def place_of(linked: str) -> str:
    """Where the loader looks without being told; the loader itself has its fixed place."""
    if "/ld-linux" in linked:
        return linked.lstrip("/")
    return f"usr/lib/{Path(linked).name}"


def _kill_mentioning(text: str) -> None:
    """Shims and a containerd that outlive a killed engine name its folder or namespace."""
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError):
            if text.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                os.kill(int(name), signal.SIGKILL)


def _mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return sorted((m for m in (line.split()[1] for line in lines) if m.startswith(f"{folder}/")),
                  reverse=True)  # fmt: skip
