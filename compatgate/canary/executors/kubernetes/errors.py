"""Errors of the API server in our words: what another attempt may mend, and what it will not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.canary.executors.causes import innermost
from compatgate.errors import BadInput, CompatgateError, Forbidden, Infrastructure, NotFound
from compatgate.kubernetes import library
from compatgate.kubernetes.errors import TRY_AGAIN, Busy, Gone, Missing, Taken, busy, said

if TYPE_CHECKING:
    from compatgate.canary.executors.kubernetes.connect import Cluster

MANIFESTS = "'compatgate k8s manifests' prints what the worker must be allowed"


@contextmanager
def translated(cluster: Cluster) -> Iterator[None]:
    """Around a request.

    Raises:
        Gone: see there.
        Missing, Taken, CompatgateError: the server refuses.
        Infrastructure: it cannot be reached, went away or failed within.
    """
    from urllib3.exceptions import HTTPError

    refused = library.client().ApiException
    try:
        yield
    except refused as error:
        raise _refusal(error, cluster) from error
    except (HTTPError, OSError, EOFError, msgspec.DecodeError) as error:
        raise Busy(
            f"the cluster of {cluster.where} does not answer: {innermost(error)}",
            field="host",
            value=cluster.host.name,
            hint="see that its API server runs and that the worker may reach it",
        ) from error


def _refusal(error: Any, cluster: Cluster) -> CompatgateError:
    what = said(error.body) or error.reason or "no reason given"
    at = f"the cluster of {cluster.where}"
    match error.status:
        case 410:
            return Gone(what)
        case 404 if what.startswith("namespaces "):
            hint = "create it, or name another in [host.kubernetes]"
            problem = f"{at} has not the namespace"
            return NotFound(problem, field="namespace", value=cluster.namespace, hint=hint)
        case 404:
            return Missing(f"{at}: {what}")
        case 409:
            return Taken(f"{at} refuses: {what}")
        case 401:
            cluster.close()  # a token may have been renewed where it came from
            return Busy(f"{at} does not know the worker: {what}", hint="log in again")
        case 403:
            return _forbidden(at, what)
        case 400 | 413 | 422:
            return BadInput(f"{at} refuses: {what}", field="host.kubernetes")
        case 0:
            return CompatgateError(f"{at} cannot be trusted: {error.reason}", field="host")
        case status if status in TRY_AGAIN:
            return busy(f"{at} failed: {what}", error)
    return Infrastructure(f"{at} failed: {error.status} {what}")


def _forbidden(at: str, what: str) -> CompatgateError:
    if "exceeded quota" in what:
        return Infrastructure(f"{at} has no room: {what}")
    if "admission webhook" in what or "violates PodSecurity" in what:
        return Forbidden(f"{at} does not admit the job: {what}")
    return Forbidden(f"{at} does not allow it: {what}", hint=MANIFESTS)
