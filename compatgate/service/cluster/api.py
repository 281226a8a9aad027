"""Serve ``POST /k8s/check``: admission's answer for an object that no cluster has seen."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from compatgate.kit.http import requests as bodies
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.route import Body, Call, Returns, Routes
from compatgate.service.cluster.manifest_checks import ManifestChecks
from compatgate.service.cluster.manifests import MAX_DEPTH
from compatgate.service.cluster.schemas import (
    CHECK_EXAMPLES,
    ManifestCheckBody,
    ManifestCheckRequest,
)

routes = Routes("gate", targets="checked", scope="gate")


class CheckOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a check."""

    timeout: Annotated[
        str | None,
        Meta(description="time for the answer, at most 30s (default: 10s)", examples=["10s"]),
    ] = None


@routes.post(
    "/k8s/check",
    Returns(ManifestCheckBody, "The answer of admission; denials also return 200"),
    query=CheckOptions,
    body=Body(ManifestCheckRequest, examples=CHECK_EXAMPLES),
    errors=(503,),
)
def check_manifest(call: Call[CheckOptions]) -> Reply:
    """Check a Kubernetes object before a cluster sees it, as admission would decide now.

    The gate's own options count: `serve --kinds`, `--unmatched`, `--exempt` and `--registry`. An
    object without GPU pods is allowed, with `uses_gpus` false. Nothing is logged: admission decides
    again when the object is created. 503: nothing can be decided now, whatever
    `serve --on-failure` says.
    """
    request = bodies.to_struct(
        bodies.to_object(call.raw(), MAX_DEPTH), ManifestCheckRequest, {"object": _HINT}
    )
    answer = call.use(ManifestChecks).check(
        request.object,
        request.namespace,
        timeout=call.query.timeout or "",
        permit=call.principal.require_question,
        claims=request.claims,
    )
    return Reply(msgspec.to_builtins(answer))


_HINT = "a Kubernetes object with apiVersion, kind and metadata"
