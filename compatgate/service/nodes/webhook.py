"""Set the failure policy of the webhook for pods, and fail closed only once the gate answers.

The gate is asked as the API server asks it: at the Service that the webhook names, with the
authority that the webhook names.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import httpx
from msgspec import Struct

from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.kit.kubernetes import ClusterApi, read_list, read_mapping, read_text

Policy = Literal["Fail", "Ignore"]
WEBHOOK = "pods.compatgate.dev"
"""Name of the webhook that may fail closed; the other one always fails open."""
MANAGER = "compatgate-webhook"
_PAUSE_S = 2.0
_TIMEOUT_S = 10.0
_ANSWERS = 3
"""Answers in a row that count as ready; a Service may lead to several replicas."""


class Webhook(Struct, frozen=True):
    """The webhook for pods, as the cluster has it, and the authority that the API server trusts."""

    index: int
    policy: str
    url: str
    authority: str


def read_webhook(api: ClusterApi, name: str) -> Webhook:
    """Read the webhook for pods of a configuration."""
    body = api.ask("admission", "read_validating_webhook_configuration", name)
    for index, entry in enumerate(map(read_mapping, read_list(body.get("webhooks")))):
        if entry.get("name") == WEBHOOK:
            client = read_mapping(entry.get("clientConfig"))
            try:
                raw = base64.b64decode(read_text(client.get("caBundle")), validate=True)
                authority = raw.decode("ascii").strip()
            except (binascii.Error, UnicodeDecodeError):
                authority = ""
            policy = read_text(entry.get("failurePolicy"))
            return Webhook(index, policy, _url(client, name), authority)
    hint = "name the configuration that the Helm chart made"
    raise BadInput(f"{name!r} has no webhook {WEBHOOK}", field="--name", value=name, hint=hint)


def set_policy(api: ClusterApi, name: str, webhook: Webhook, policy: Policy) -> bool:
    """Set the policy; return whether it was another one."""
    if webhook.policy == policy:
        return False
    path = f"/webhooks/{webhook.index}"
    patch = [
        {"op": "test", "path": f"{path}/name", "value": WEBHOOK},
        {"op": "replace", "path": f"{path}/failurePolicy", "value": policy},
    ]
    operation = "patch_validating_webhook_configuration"
    api.ask("admission", operation, name, patch, field_manager=MANAGER)
    return True


def wait_until_ready(read: Callable[[], Webhook], wait_s: float) -> Webhook:
    """Wait until the gate is ready; return the webhook as it was then.

    The webhook is read again each time: cert-manager enters the authority when it likes.
    """
    deadline = time.monotonic() + wait_s
    answers = 0
    while True:
        webhook = read()
        reason = _why_not(webhook)
        answers = 0 if reason else answers + 1
        if answers == _ANSWERS:
            return webhook
        if reason and time.monotonic() >= deadline:
            what = f"the gate at {webhook.url} is not ready: {reason}"
            hint = "the failure policy stays Ignore; look at the pods, Service and certificate"
            raise Unavailable(what, hint=hint)
        time.sleep(_PAUSE_S if reason else _PAUSE_S / 4)


def _why_not(webhook: Webhook) -> str:
    """Ask the gate whether it is ready; return why not, or nothing."""
    if not webhook.authority:
        return "the webhook names no authority yet (caBundle)"
    try:
        context = ssl.create_default_context(cadata=webhook.authority)
        answer = httpx.get(
            f"{webhook.url}/readyz", verify=context, timeout=_TIMEOUT_S, trust_env=False
        )
    except (ssl.SSLError, ValueError) as error:
        return f"the authority of the webhook (caBundle) cannot be read: {quote_error(error)}"
    except httpx.HTTPError as error:
        return quote_error(error)
    return "" if answer.status_code == httpx.codes.OK else f"/readyz answers {answer.status_code}"


def _url(client: Mapping[str, Any], name: str) -> str:
    service = read_mapping(client.get("service"))
    where = read_text(service.get("name")), read_text(service.get("namespace"))
    if not all(where):
        what = f"the webhook {WEBHOOK} of {name!r} leads to no Service"
        raise BadInput(what, field="--name", value=name)
    port = service.get("port", 443)
    return f"https://{where[0]}.{where[1]}.svc" + ("" if port == 443 else f":{port}")
