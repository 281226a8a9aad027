"""Ask the API server of a cluster, with retries, and read the objects that it sends.

The official client (extra ``kubernetes``) is imported when a command reaches a cluster. A value of
an unexpected type in an object counts as missing.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from compatgate.errors import (
    BadInput,
    CompatgateError,
    Conflict,
    Forbidden,
    InfrastructureError,
    NotFound,
    quote_error,
)
from compatgate.kit.cli.output import shorten_text
from compatgate.resources import install_hint
from compatgate.strict_json import DECODE_ERRORS

RETRY_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Pauses between retries, in seconds."""
UNREPORTED_LABELS = re.compile(
    r"feature\.node\.kubernetes\.io/"
    r"(?!pci-|rdma|network|kernel-version\.full$|system-os_release\.(?:ID|VERSION_ID)$)"
    r"|beta\.kubernetes\.io/(?!instance-type$)"
)
"""Labels that reports leave out: of the processor and details of the kernel."""
T = TypeVar("T")
PAGE = 500
_TIMEOUT_S = (10, 60)
_LISTS = 3
"""Maximum number of attempts at a list whose continuation expires."""
_APIS = {
    "admission": "AdmissionregistrationV1Api",
    "batch": "BatchV1Api",
    "core": "CoreV1Api",
    "custom": "CustomObjectsApi",
}
RETRY_HINT = (429, 500, 502, 503, 504)
"""Statuses of a busy server."""
_LONGEST_PAUSE_S = 30.0
_EMPTY_MAPPING: dict[str, Any] = {}
WILDCARD = "*"


class ClusterAccess(Struct, frozen=True):
    """The access to a cluster.

    ``kubeconfig``: file with credentials; None: ``KUBECONFIG``, else the user's.
    """

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False


def retry_request(
    request: Callable[[], dict[str, Any]], pauses: Sequence[float], sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Make a request, and retry it while the server is busy or unreachable.

    Raise `ServerBusy` if the last try failed too, or asks for more time than anyone waits.
    """
    for pause in (*pauses, None):
        try:
            return request()
        except ServerBusy as error:
            asked = error.retry_after or 0.0
            if pause is None or asked > _LONGEST_PAUSE_S:
                raise
            sleep(max(pause, asked))
    raise AssertionError("the last try returns or raises")


def kubernetes_client() -> Any:
    """Return the module ``kubernetes.client``; importing it takes half a second."""
    try:
        from kubernetes import client as module
    except ImportError:
        raise BadInput(
            "access to clusters needs a library that is not installed: kubernetes",
            field="kubernetes",
            value="kubernetes",
            hint=install_hint("kubernetes"),
        ) from None
    return module


class ServerBusy(InfrastructureError):
    """An error: the server is busy; it may have sent a pause."""

    retry_after: float | None = None


class ObjectMissing(NotFound):
    """An error: the object does not exist."""


class ObjectExists(Conflict):
    """An error: an object of this name exists, or was changed meanwhile."""


class VersionGone(InfrastructureError):
    """An error: the server no longer has the version of a watch; list again."""


def explain_refusal(error: Any, at: str) -> CompatgateError:
    """Return the error for a refused request, where it means the same to every caller."""
    what = refusal_text(error)
    match error.status:
        case 410:
            return VersionGone(what)
        case 404:
            return ObjectMissing(f"{at}: {what}")
        case 409:
            return ObjectExists(f"{at} refuses: {what}")
        case status if status in RETRY_HINT:
            busy = ServerBusy(f"{at} failed: {what}")
            header = (error.headers or {}).get("Retry-After")
            busy.retry_after = float(header) if header and header.isdecimal() else None
            return busy
    return InfrastructureError(f"{at} failed: {error.status} {what}")


def refusal_text(error: Any) -> str:
    """Return what the server says of a refused request."""
    return error_text(error.body) or error.reason or "no reason given"


def error_text(body: Any) -> str:
    """Return the message of a ``Status`` object, in one line."""
    try:
        status = msgspec.json.decode(body or b"")
        message = status.get("message") if isinstance(status, dict) else None
    except (*DECODE_ERRORS, TypeError):
        message = body.decode(errors="replace") if isinstance(body, bytes) else body
    return " ".join(str(message or "").split())[:1000]


def read_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else _EMPTY_MAPPING


def read_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def read_text(value: Any) -> str:
    """Return the value if it is text, else empty text."""
    return value if isinstance(value, str) else ""


def read_labels(value: Any) -> dict[str, str]:
    """Return the text-to-text pairs of a mapping, such as labels and annotations."""
    return {key: item for key, item in read_mapping(value).items() if isinstance(item, str)}


def find_at(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every value that a path matches, each with its own path.

    In ``spec.workers.*.template``, ``*`` is every item of a list or value of a mapping.
    """
    found: list[tuple[str, Any]] = [("", value)]
    for name in path.split("."):
        steps: list[tuple[str, Any]] = []
        for where, here in found:
            if isinstance(here, list) and name == WILDCARD:
                steps += [(f"{where}[{number}]", item) for number, item in enumerate(here)]
            elif isinstance(here, dict):
                names = here if name == WILDCARD else {name} & here.keys()
                steps += [(f"{where}.{key}" if where else key, here[key]) for key in names]
        found = steps
    yield from found


def to_one_line(said: str, most: int) -> str:
    """Return text on one line, without control characters, truncated to ``most`` characters."""
    if not said.isprintable():
        said = "".join(c if c.isprintable() else " " for c in said)
    return shorten_text(" ".join(said.split()), most)


class ClusterApi:
    """A connection to the API server, which retries while the server is busy."""

    def __init__(
        self,
        access: ClusterAccess,
        sleep: Callable[[float], None] = time.sleep,
        *,
        pauses: Sequence[float] | None = None,
        timeout_s: tuple[float, float] = _TIMEOUT_S,
        connections: int | None = None,
    ) -> None:
        self._access = access
        self._sleep = sleep
        self._pauses = pauses
        self._timeout_s = timeout_s
        self._connections = connections
        self._lock = threading.Lock()
        self._client: Any = None

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Make a request that can safely be repeated.

        ``api``: ``admission``, ``batch``, ``core`` or ``custom``; ``operation``: a method of the
        client, such as ``read_namespaced_job``.
        """

        def once() -> dict[str, Any]:
            with self.translating():
                response = self.open(api, operation, *args, timeout_s=self._timeout_s, **params)
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        pauses = RETRY_PAUSES if self._pauses is None else self._pauses
        return retry_request(once, pauses, self._sleep)

    def open(
        self, api: str, operation: str, *args: Any, timeout_s: tuple[float, float], **params: Any
    ) -> Any:
        """Make a request once; return urllib3's response with its body unread."""
        method = getattr(getattr(kubernetes_client(), _APIS[api])(self.connect()), operation)
        return method(*args, **params, _preload_content=False, _request_timeout=timeout_s)

    def listed(
        self,
        api: str,
        operation: str,
        *args: Any,
        keep: Callable[[dict[str, Any]], T | None],
        **params: Any,
    ) -> list[T]:
        """Return every item of a list, page by page, or raise."""
        found: list[T] = []
        more: dict[str, Any] = {}
        restarts = 0
        while True:
            try:
                page = self.ask(api, operation, *args, **params, **more, limit=PAGE)
            except VersionGone:  # the continuation expired
                restarts += 1
                if restarts == _LISTS:
                    raise
                found, more = [], {}
                continue
            kept = (keep(item) for item in page.get("items") or () if isinstance(item, dict))
            found += [item for item in kept if item is not None]
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            more = {"_continue": following}

    def connect(self) -> Any:
        """Return the client; read the credentials first. The server is not asked."""
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def _refused(self, what: str) -> BadInput:
        """Return the error for credentials that cannot be used; an executor names its host."""
        return BadInput(
            f"no connection to the cluster is configured: {what}",
            field="--kubeconfig",
            value=self._access.kubeconfig,
            hint="use --kubeconfig and --context, or --in-cluster in a pod",
        )

    def _make_client(self) -> Any:
        module, access = kubernetes_client(), self._access
        from kubernetes import config
        from urllib3.util.retry import Retry

        configuration = module.Configuration()
        try:
            if access.in_cluster:
                config.load_incluster_config(client_configuration=configuration)
            else:
                config.load_kube_config(
                    config_file=access.kubeconfig,
                    context=access.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (config.ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            raise self._refused(quote_error(error)) from None
        # What is tried again, and for how long, is decided in `retry_request`.
        configuration.retries = Retry(total=0, respect_retry_after_header=False)
        if self._connections is not None:
            configuration.connection_pool_maxsize = self._connections
        return module.ApiClient(configuration)

    def close(self) -> None:
        """Drop the connection; the next request reads the credentials again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate the errors of a request."""
        from urllib3.exceptions import HTTPError

        refused = kubernetes_client().ApiException
        try:
            yield
        except refused as error:
            raise self._explain(error) from error
        except (HTTPError, OSError, EOFError, *DECODE_ERRORS) as error:
            what = quote_error(error)
            hint = "check that its API server runs and is reachable from here"
            raise ServerBusy(f"the cluster does not answer: {what}", hint=hint) from error

    def _explain(self, error: Any) -> CompatgateError:
        what = refusal_text(error)
        match error.status:
            case 401:
                text = f"the cluster does not accept the credentials: {what}"
                return Forbidden(text, hint="log in again")
            case 403:
                hint = "apply the roles that the Helm chart makes (nodes.report, audit.enabled)"
                return Forbidden(f"the cluster does not allow it: {what}", hint=hint)
            case 0:
                reason = quote_error(error.reason)
                return CompatgateError(f"the cluster's certificate is not trusted: {reason}")
            case status if status < 500 and status not in (404, 409, 410, *RETRY_HINT):
                return BadInput(f"the cluster refuses: {what}")
        return explain_refusal(error, "the cluster")
