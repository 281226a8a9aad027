"""A client of an API server, and how patiently it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.kubernetes.errors import Busy, pause_after

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Between tries of a request that the server could not answer just then."""


class Access(Struct, frozen=True):
    """How a cluster is reached.

    Attributes:
        kubeconfig: file with credentials; None: ``KUBECONFIG``, else the user's.
        context: of that file; None: its current one.
        in_cluster: by the service account of the pod that asks.
    """

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False


def api_client(
    module: Any,
    access: Access,
    refused: Callable[[str], BadInput],
    connections: int | None = None,
) -> Any:
    """An ``ApiClient`` of the official library.

    Args:
        module: of `compatgate.kubernetes.library.client`.
        access: how the cluster is reached.
        refused: makes the error, of what is wrong with the access.
        connections: that are kept; None: as the library does.

    Raises:
        BadInput: there is no such way to the cluster.
    """
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
        raise refused(" ".join(str(error).split())) from None
    # What is tried again, and for how long, is decided in `patiently`.
    configuration.retries = Retry(total=0, respect_retry_after_header=False)
    if connections is not None:
        configuration.connection_pool_maxsize = connections
    return module.ApiClient(configuration)


def patiently(
    request: Callable[[], dict[str, Any]],
    pauses: Sequence[float],
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    """What a request answers, which is made again where the server cannot answer just then.

    Args:
        request: may be made twice.
        pauses: between two tries.
        sleep: waits.

    Raises:
        Busy: the last try failed too, or the server asked for more time than anyone waits.
    """
    for pause in (*pauses, None):
        try:
            return request()
        except Busy as error:
            wait = pause_after(error, pause)
            if wait is None:
                raise
            sleep(wait)
    raise AssertionError("the last try returns or raises")
