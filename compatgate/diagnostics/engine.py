"""Ask a container engine with Docker's API, through Docker's client library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput, CompatgateError, NotFound, Unavailable, quote_error

TIMEOUT_S = 60
"""Timeout of the engine in seconds."""
_FIELD = "--container"


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
