"""Probe a running container: its files, and the libraries loaded in its processes.

Files are streamed, like the layers of an image, and never unpacked. The container engine is asked
with Docker's API, through Docker's client library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.gpu_code import parse_arch
from compatgate.diagnostics.document import (
    Process,
    describe_unknown_versions,
    major_conflicts,
    reported_variables,
)
from compatgate.diagnostics.loaded import DRIVER_CUDA
from compatgate.diagnostics.process import Host, add_user_driver, read_process
from compatgate.discovery.findings import CodeFile, Inspection, find_common_code
from compatgate.discovery.image.config import read_config
from compatgate.discovery.image.layer import Layer
from compatgate.discovery.image.layers import LayerScan
from compatgate.discovery.image.read import conclude_image
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.discovery.observations import Conflict, Observation, settle
from compatgate.discovery.registry.image_spec import Config, Descriptor, Settings
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.signals import COMPAT_USE, CUDA_COMPAT, read_signals
from compatgate.errors import BadInput, CompatgateError, NotFound, Unavailable, quote_error

TIMEOUT_S = 60
"""Timeout of the engine in seconds."""
_FIELD = "--container"
MAX_PROCESSES = 256
ProcessInspections = list[tuple[Process, Inspection]]


class Container(Struct, frozen=True):
    """A running container.

    Attributes:
        environment: variables of its config, ``NAME=value``.
        granted: granted GPUs in the form of ``NVIDIA_VISIBLE_DEVICES``; None: no GPU.
    """

    id: str
    name: str
    image: str
    pid: int
    environment: list[str]
    labels: dict[str, str]
    granted: str | None

    @property
    def short(self) -> str:
        """Return ``container web (0123456789ab)``."""
        return f"container {self.name} ({self.id[:12]})"

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment as a mapping."""
        return dict(item.partition("=")[::2] for item in self.environment)


class Engine:
    """A container engine, found as by Docker's command line (``DOCKER_HOST``, ...)."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def find(self, reference: str) -> Container:
        """Return a running container."""
        with _translate_errors(reference):
            found = self._client.containers.get(reference)
            runtime = str(self._client.info().get("DefaultRuntime") or "")
        attributes: dict[str, Any] = found.attrs
        state = attributes.get("State") or {}
        if not state.get("Running") or not state.get("Pid"):
            raise BadInput(
                f"container {reference} is not running ({state.get('Status', 'unknown')})",
                field=_FIELD,
                value=reference,
                hint="check the image of the container with compatgate check --image",
            )
        config = attributes.get("Config") or {}
        return Container(
            str(attributes["Id"]),
            str(attributes.get("Name", "")).lstrip("/"),
            str(config.get("Image", "")),
            int(state["Pid"]),
            list(config.get("Env") or ()),
            dict(config.get("Labels") or {}),
            granted_gpus(attributes.get("HostConfig") or {}, config.get("Env") or (), runtime),
        )

    def processes(self, container: Container) -> list[int]:
        """Return the container's processes, first one first, numbered by the engine's machine."""
        try:
            with _translate_errors(container.name):
                table = self._client.api.top(container.id, ps_args="-eo pid")
            column = table["Titles"].index("PID")
            pids = [int(row[column]) for row in table["Processes"]]
        except (CompatgateError, KeyError, ValueError, IndexError):
            return [container.pid]  # the engine's machine lacks ps
        return list(dict.fromkeys([container.pid, *sorted(pids)]))

    @contextmanager
    def files(self, container: Container) -> Iterator[Iterator[bytes]]:
        """Stream the container's file system as a tar archive, without mounts."""
        with _translate_errors(container.name):
            stream = self._client.api.export(container.id)
            try:
                yield stream
            finally:
                stream.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextmanager
def connect_engine() -> Iterator[Engine]:
    """Connect to the engine."""
    docker = import_module("docker")
    try:
        engine = Engine(docker.from_env(timeout=TIMEOUT_S))
    except docker.errors.DockerException as error:
        raise _no_answer_error(error) from None
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _translate_errors(reference: str) -> Iterator[None]:
    errors = import_module("docker.errors")
    transport = (import_module("requests").RequestException, import_module("urllib3").exceptions)
    try:
        yield
    except errors.NotFound:
        raise NotFound(
            f"container {reference} does not exist", field=_FIELD, value=reference, hint="docker ps"
        ) from None
    except (errors.DockerException, transport[0], transport[1].HTTPError) as error:
        raise _no_answer_error(error) from None


def _no_answer_error(error: Exception) -> Unavailable:
    why = quote_error(getattr(error, "explanation", None) or error)
    return Unavailable(
        f"the container engine does not answer: {' '.join(str(why).split())[:300]}",
        field=_FIELD,
        hint="check that the engine runs, that this user may use its socket, and DOCKER_HOST",
    )


def granted_gpus(host: Mapping[str, Any], environment: Any, default_runtime: str) -> str | None:
    """Return the GPUs of a container: by request, by the runtime's variable, or as devices."""
    for request in host.get("DeviceRequests") or ():
        named = [str(n).removeprefix("nvidia.com/gpu=") for n in request.get("DeviceIDs") or ()]
        capabilities = {c for group in request.get("Capabilities") or () for c in group}
        if named and (request.get("Driver") == "cdi" or "gpu" in capabilities):
            return ",".join(named)
        if "gpu" in capabilities:
            count = int(request.get("Count") or 0)
            return "all" if count < 0 else ",".join(map(str, range(count)))
    if "nvidia" in (host.get("Runtime"), host.get("Runtime") or default_runtime):
        variables = dict(item.partition("=")[::2] for item in environment)
        return variables.get("NVIDIA_VISIBLE_DEVICES")
    if host.get("Privileged"):
        return "all"
    paths = [str(device.get("PathOnHost", "")) for device in host.get("Devices") or ()]
    numbers = [p.removeprefix("/dev/nvidia") for p in paths if p.startswith("/dev/nvidia")]
    return ",".join(n for n in numbers if n.isdecimal()) or None


def probe_container(reference: str, facts: Facts, signals: Mapping[str, Any]) -> dict[str, Any]:
    """Return the probe document of a running container."""
    host = Host.here()
    with connect_engine() as engine:
        container = engine.find(reference)
        local = _is_here(container)
        pids = engine.processes(container) if local else []
        looked = _look(pids, facts, host)
        files = inspect_files(engine, container, signals, facts)
    if not local:
        host.notes.append("the engine runs on another machine: processes and GPUs are unknown")
    seen = join_inspections(files, looked, facts.arch)
    pools = host.pools(_gpus(container, host) if local else None, facts)
    document = host.document(seen, pools)
    return {**document, "container": _describe(container, looked)}


def _gpus(container: Container, host: Host) -> Report | None:
    """Return the GPUs granted to the container."""
    if not container.granted:
        host.notes.append(f"{container.short} has no GPU")
        return None
    variables = {**container.variables, "NVIDIA_VISIBLE_DEVICES": container.granted}
    return host.left_to(variables, container=True)


def _is_here(container: Container) -> bool:
    """Tell whether the container's first process runs on this machine and names the container."""
    for name in ("cgroup", "mountinfo"):
        try:
            with open(f"/proc/{container.pid}/{name}", encoding="utf-8", errors="replace") as file:
                if container.id in file.read():
                    return True
        except OSError:
            continue
    return False


def _look(pids: list[int], facts: Facts, host: Host) -> ProcessInspections:
    """Return the processes that use or may use a GPU; skip those that end meanwhile."""
    result = []
    if len(pids) > MAX_PROCESSES:
        host.notes.append(f"{len(pids)} processes run; only {MAX_PROCESSES} were inspected")
    for pid in pids[:MAX_PROCESSES]:
        try:
            view = read_process(pid, facts.arch)
        except NotFound:
            continue
        except BadInput as error:
            host.notes.append(error.detail)
            continue
        host.notes.extend(view.notes)
        if view.uses_gpu_code:
            result.append((view.process, add_user_driver(view, host)))
    return result


def join_inspections(files: Inspection, looked: ProcessInspections, arch: CudaArch) -> Inspection:
    """Join files and processes to one stack; loaded libraries win, differences are conflicts."""
    stack: dict[str, Any] = {}
    conflicts: list[Conflict] = []
    for process, seen in looked:
        conflicts += seen.conflicts
        for name, value in seen.stack.items():
            if not _versions_agree(name, stack.setdefault(name, value), value):
                message = f"processes differ: {name} is {stack[name]}, in {process.pid} {value}"
                conflicts.append(Conflict(name, message, str(stack[name])))
    if "measured" in files.stack:  # loaded libraries belong to packages that are judged one by one
        stack.pop("arch", None)
    elif any("arch" in seen.stack for _, seen in looked):
        stack["arch"], disagreements = _code(looked, arch)
        conflicts += disagreements
    loaded = dict(stack)
    libraries = [library for process, _ in looked for library in process.libraries]
    for name, value in files.stack.items():
        if name in (CUDA_COMPAT, COMPAT_USE) and any(
            library.component == DRIVER_CUDA for library in libraries
        ):
            continue  # a libcuda file does not count where libcuda is loaded
        if not _versions_agree(name, stack.setdefault(name, value), value):
            known = (
                o.origin for o in files.observations if (o.component, o.version) == (name, value)
            )
            message = f"{name} {stack[name]} is loaded, {next(known, 'the container')} says {value}"
            conflicts.append(Conflict(name, message, str(stack[name])))
    conflicts += [c for c in files.conflicts if c.component not in loaded]
    conflicts += major_conflicts(libraries, stack)
    left = [sentence for _, seen in looked for sentence in seen.open]
    return Inspection(
        stack,
        tuple(o for seen in (*(s for _, s in looked), files) for o in seen.observations),
        tuple(dict.fromkeys(conflicts)),
        (*describe_unknown_versions(libraries, stack), *dict.fromkeys([*left, *files.open])),
    )


def _code(looked: ProcessInspections, facts: CudaArch) -> tuple[list[str], list[Conflict]]:
    """Return the GPU code that all processes have in common, and conflicts."""
    files = []
    for process, seen in looked:
        if "arch" in seen.stack:
            arch = tuple(code for name in seen.stack["arch"] for code in parse_arch(name))
            files.append(CodeFile(name := f"process {process.pid}", name, arch))
    common, conflicts = find_common_code(files, facts)
    return [code.name for code in common], conflicts


def _versions_agree(name: str, one: Any, other: Any) -> bool:
    if not isinstance(one, str) or not isinstance(other, str):
        return True
    return not settle([Observation(name, one, ""), Observation(name, other, "")])[1]


def _describe(container: Container, looked: ProcessInspections) -> dict[str, Any]:
    return {
        "id": container.id,
        "name": container.name,
        "image": container.image,
        "gpus": container.granted,
        "environment": reported_variables(container.variables),
        "processes": [process.to_json() for process, _ in looked],
    }


DEADLINE_S = 600.0


def inspect_files(
    engine: Engine,
    container: Container,
    signals: Mapping[str, Any],
    facts: Facts,
    *,
    deadline_s: float = DEADLINE_S,
) -> Inspection:
    """Inspect a container's config and files."""
    published = read_signals(signals)
    config = Config(config=Settings(container.environment, labels=container.labels))
    stated = read_config(config, published)
    with Deadline(deadline_s) as deadline:
        scan = LayerScan(published, ImageOptions(layers="all"), deadline)
        layer = Layer(1, Descriptor("", 0), container.short)
        scan.read([layer], _Export(engine, container))
    return conclude_image(stated, scan.seen, facts.arch, facts.packages)


class _Export:
    """A container's file system in the form that `Scan` reads."""

    def __init__(self, engine: Engine, container: Container) -> None:
        self._engine = engine
        self._container = container

    @contextmanager
    def blob(self, _: Descriptor) -> Iterator[_Stream]:
        with self._engine.files(self._container) as pieces:
            yield _Stream(pieces)


class _Stream:
    """An iterator of chunks as a file that can be read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.position = 0
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        data, self._rest = self._rest[:size], self._rest[size:]
        self.position += len(data)
        return data

    def drain(self) -> None:
        self._rest = b""
        for piece in self._pieces:
            self.position += len(piece)
