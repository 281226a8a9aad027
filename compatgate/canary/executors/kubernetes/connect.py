"""The connection to a cluster's API server, through the official client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from compatgate.canary.executors.kubernetes.errors import translated
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.errors import BadInput
from compatgate.kubernetes import library
from compatgate.kubernetes.connect import PAUSES, Access, api_client, patiently

TIMEOUT_S = (10, 30)
"""For a connection and for an answer."""
_SILENT_S = 900
"""That a stream may be silent: its other end may be gone without a word."""
_PAUSES = PAUSES


class Cluster:
    """Connects when it is first needed, and again after the connection was dropped.

    Args:
        host: whose cluster it is.
        sleep: waits between two tries.
    """

    def __init__(self, host: Host, sleep: Callable[[float], None] = time.sleep) -> None:
        self.host = host
        self.settings = host.kubernetes or Kubernetes()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._client: Any = None
        self._apis: dict[str, Any] = {}

    @property
    def namespace(self) -> str:
        """Where everything is made."""
        return self.settings.namespace

    @property
    def where(self) -> str:
        """The host and its namespace, for messages."""
        return f"{self.host.name} (namespace {self.namespace})"

    def ask(self, api: str, operation: str, *args: Any, **params: Any) -> dict[str, Any]:
        """Ask for one thing in the namespace, and again where the server cannot answer just now.

        Every request that is made here may be made twice: what is created has a name that is
        taken then, and what is deleted is gone.

        Args:
            api: ``batch`` or ``core``.
            operation: of the client, such as ``read_namespaced_job``.
            args: before the namespace.
            params: further ones.

        Raises:
            Missing, Taken: there is none; its name is taken.
            Infrastructure: the server does not answer, or cannot now.
            CompatgateError: it refuses.
        """

        def once() -> dict[str, Any]:
            with translated(self):
                response = self._call(api, operation, args, params, TIMEOUT_S)
                body: dict[str, Any] = msgspec.json.decode(response.data)
                return body

        return patiently(once, _PAUSES, self._sleep)

    def open(self, api: str, operation: str, *args: Any, **params: Any) -> Any:
        """Open a stream: the answer of urllib3, its body not read.

        Raises:
            ApiException, urllib3.exceptions.HTTPError: for `translated`, which is around it.
        """
        return self._call(api, operation, args, params, (TIMEOUT_S[0], _SILENT_S))

    def close(self) -> None:
        """Drop the connection; the next request reads the credentials anew."""
        with self._lock:
            client, self._client = self._client, None
            self._apis.clear()
        if client is not None:
            client.close()

    def _call(
        self, api: str, operation: str, args: Any, params: dict[str, Any], timeout: Any
    ) -> Any:
        method = getattr(self._api(api), operation)
        return method(
            *args[:1],
            self.namespace,
            *args[1:],
            **params,
            _preload_content=False,
            _request_timeout=timeout,
        )

    def _api(self, name: str) -> Any:
        with self._lock:
            if name not in self._apis:
                module = library.client()
                self._client = self._client or self._connect(module)
                make = {"batch": module.BatchV1Api, "core": module.CoreV1Api}[name]
                self._apis[name] = make(self._client)
            return self._apis[name]

    def _connect(self, module: Any) -> Any:
        settings = self.settings
        access = Access(settings.kubeconfig, settings.context, settings.in_cluster)
        return api_client(module, access, self._refused, 4 * self.host.slots + 4)

    def _refused(self, what: str) -> BadInput:
        return BadInput(
            f"there is no way to the cluster of {self.host.name}: {what}",
            field="host.kubernetes",
            value=self.settings.context or self.settings.kubeconfig,
            hint="name kubeconfig and context, or in_cluster = true for a worker that is a pod",
        )
