"""Make the objects that register the webhook in a cluster, as plain data.

Two webhooks: one for pods, which protects the nodes, and one for the objects that make pods,
which tells developers early. The first is asked about GPU pods alone (``matchConditions``).
Both fail open: applied before a gate answers behind the Service, a webhook that fails closed
would refuse every GPU pod of the cluster. The first fails closed where that is asked for.
"""

from __future__ import annotations

import json
import posixpath
from typing import Any, Literal, get_args

from msgspec import Struct

from compatgate.service.admission.events import event_access
from compatgate.service.admission.kinds import CLASS_RESOURCE, Kinds, PodKind
from compatgate.service.admission.pods import FOLDER, GPU_ANNOTATION
from compatgate.service.admission.policy import PolicyAction, gpu_resource, policy_objects

NAME = "compatgate"
PATH = "/hooks/kubernetes/validate"
SECRET = "compatgate-tls"  # noqa: S105 - the name of an object
PORT = 8443
_DEVICES = posixpath.basename(FOLDER)
_PART_OF = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME}
EXCLUDED = "compatgate.dev/excluded-namespaces"
"""Annotation of the configuration: why it leaves out the namespaces that it always does."""
_GATE_REASON = "the gate itself; where it is refused, nothing can be decided"
OPERATOR = "gpu-operator"
"""The default namespace of the GPU Operator. Its validator pods ask for a GPU: where they
are refused, no node gets ready.

Source: NVIDIA GPU Operator, "Installing the NVIDIA GPU Operator".
"""
_GATE_REASON = "the gate itself; where it is refused, nothing can be decided"
LABEL = "compatgate.dev/admission"
"""Label by which a namespace opts in (``enabled``) or out (``disabled``)."""
Selection = Literal["all", "opt-in", "opt-out"]
Object = dict[str, Any]


class WebhookOptions(Struct, frozen=True):
    """The options of the printed objects.

    Attributes:
        namespace: of the gate.
        failure_policy: of the webhook: what happens to GPU pods while no gate answers.
        timeout_s: that the API server waits; the gate answers within nine tenths of it.
        excluded: namespaces that are never asked about, besides the cluster's, the gate's own and
            those of the GPU Operator.
        operators: namespaces of the GPU Operator.
        ca_bundle: base64 of PEM certificates that the API server trusts; None: cert-manager makes
            the certificates and puts its authority there.
        namespaces: that are asked about: all, or by the label `LABEL`.
        events: the gate writes events about denials (``serve --kubernetes-events in-cluster``).
        policy: effect of the ValidatingAdmissionPolicy; None: there is none.
    """

    namespace: str = NAME
    failure_policy: Literal["Fail", "Ignore"] = "Ignore"
    timeout_s: int = 10
    excluded: tuple[str, ...] = ()
    operators: tuple[str, ...] = (OPERATOR,)
    ca_bundle: str | None = None
    namespaces: Selection = "all"
    events: bool = False
    policy: PolicyAction | None = None


def webhook_objects(options: WebhookOptions, kinds: Kinds) -> list[Object]:
    """Return account, service, certificates and webhooks, in the order of application.

    The gate reads what the API server sends, and nothing else of the cluster: its account has no
    role, and no token is mounted, unless it writes events.
    """
    found = [_account(options), _service(options)]
    if options.events:
        found += event_access(NAME, options.namespace)
    if options.policy is not None:
        found += policy_objects(options.policy, selected(options, kinds), kinds, uses_gpus(kinds))
    if options.ca_bundle is None:
        found += _certificates(options)
    return [*found, _configuration(options, kinds)]


def asked_objects(kinds: Kinds) -> Object:
    """Return rules, conditions and excluded namespaces, as the chart's values ``webhook.asked``."""
    pods = [kind for kind in kinds.file.kinds if kind.pod]
    makers = [kind for kind in kinds.file.kinds if not kind.pod]
    return {
        "matchConditions": [{"name": "uses-gpus", "expression": uses_gpus(kinds)}],
        "pods": [_rule(kind, ("/ephemeralcontainers",)) for kind in pods],
        "workloads": [_rule(kind) for kind in makers],
        "excluded": [
            {"name": one.name, "reason": one.reason}
            for one in kinds.file.excluded_namespaces
            if not one.operator
        ],
        "reasons": {"gate": _GATE_REASON, "operator": _operator_reason(kinds)},
        "policy": _asked_policy(kinds),
    }


def _asked_policy(kinds: Kinds) -> Object:
    """Return what the ValidatingAdmissionPolicy covers, checks and does, without namespaces."""
    actions: dict[PolicyAction, Any] = {}
    spec: Object = {}
    for action in get_args(PolicyAction):
        policy, binding = policy_objects(action, {}, kinds, uses_gpus(kinds))
        spec, actions[action] = policy["spec"], binding["spec"]["validationActions"]
    return {
        "resourceRules": spec["matchConstraints"]["resourceRules"],
        "matchConditions": spec["matchConditions"],
        "validations": spec["validations"],
        "actions": actions,
    }


def advice(options: WebhookOptions) -> tuple[str, ...]:
    """Say what the failure policy means until a gate answers, and how to change it; lines."""
    where = url(options.namespace)
    if options.failure_policy == "Fail":
        return (
            f"failurePolicy Fail refuses every GPU pod while no gate answers at {where}.",
            "Apply this only once it answers; --failure-policy Ignore admits GPU pods again.",
        )
    return (
        f"failurePolicy Ignore admits GPU pods unchecked while no gate answers at {where}.",
        "Once it answers, print this again with --failure-policy Fail and apply it.",
    )


def url(namespace: str) -> str:
    """Return the URL of the gate's Service, as the cluster's own programs reach it."""
    return f"https://{NAME}.{namespace}.svc"


def selected(options: WebhookOptions, kinds: Kinds) -> Object:
    """Return the selector of the namespaces that are asked about."""
    left_out = list(dict.fromkeys((*always_excluded(options, kinds), *options.excluded)))
    selectors = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": left_out}]
    if options.namespaces != "all":
        opted = ("In", "enabled") if options.namespaces == "opt-in" else ("NotIn", "disabled")
        selectors.append({"key": LABEL, "operator": opted[0], "values": [opted[1]]})
    return {"matchExpressions": selectors}


def uses_gpus(kinds: Kinds) -> str:
    """Return the CEL expression for pods that may use GPUs; it covers every pod the hook reads."""
    names = f"{gpu_resource(kinds)} || r.startsWith({json.dumps(CLASS_RESOURCE)})"
    stated = " || ".join(
        f"(has(c.resources.{part}) && c.resources.{part}.exists(r, {names}))"
        for part in ("limits", "requests")
    )
    variable = "(has(c.env) && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES'))"
    mount = f"(has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.contains('{_DEVICES}')))"
    one = f"(has(c.resources) && ({stated})) || {variable} || {mount}"
    lists = " || ".join(
        f"(has(object.spec.{name}) && object.spec.{name}.exists(c, {one}))"
        for name in ("containers", "initContainers", "ephemeralContainers")
    )
    names_of_annotations = (GPU_ANNOTATION, *(one.name for one in kinds.file.shared.annotations))
    either = " || ".join(
        f"{json.dumps(name)} in object.metadata.annotations" for name in names_of_annotations
    )
    annotated = f"(has(object.metadata.annotations) && ({either}))"
    classes = json.dumps(kinds.runtime_classes)
    by_class = f"(has(object.spec.runtimeClassName) && object.spec.runtimeClassName in {classes})"
    return f"{lists} || has(object.spec.resourceClaims) || {by_class} || {annotated}"


def _account(options: WebhookOptions) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(options.namespace),
        "automountServiceAccountToken": options.events,
    }


def _service(options: WebhookOptions) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(options.namespace),
        "spec": {
            "selector": {"app.kubernetes.io/name": NAME},
            "ports": [{"name": "https", "port": 443, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def _certificates(options: WebhookOptions) -> list[Object]:
    """Return a certificate authority and its certificate, both renewed by cert-manager.

    Source: cert-manager.io, "Self-signed" (bootstrapping CA issuers) and "CA injector".
    """
    host = f"{NAME}.{options.namespace}.svc"

    def made(kind: str, name: str, spec: Object) -> Object:
        metadata = {**_metadata(options.namespace), "name": name}
        return {
            "apiVersion": "cert-manager.io/v1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        }

    return [
        made("Issuer", f"{NAME}-root", {"selfSigned": {}}),
        made(
            "Certificate",
            f"{NAME}-ca",
            {
                "isCA": True,
                "commonName": f"{NAME} admission",
                "secretName": f"{NAME}-ca",
                "duration": "26280h",
                "privateKey": {"algorithm": "ECDSA", "size": 256},
                "issuerRef": {"name": f"{NAME}-root", "kind": "Issuer"},
            },
        ),
        made("Issuer", f"{NAME}-ca", {"ca": {"secretName": f"{NAME}-ca"}}),
        made(
            "Certificate",
            SECRET,
            {
                "secretName": SECRET,
                "dnsNames": [host, f"{host}.cluster.local"],
                "duration": "2160h",
                "renewBefore": "720h",
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"name": f"{NAME}-ca", "kind": "Issuer"},
            },
        ),
    ]


def _configuration(options: WebhookOptions, kinds: Kinds) -> Object:
    metadata = _metadata(None)
    metadata["annotations"] = {EXCLUDED: _reasons(options, kinds)}
    if options.ca_bundle is None:
        injected = f"{options.namespace}/{SECRET}"
        metadata["annotations"]["cert-manager.io/inject-ca-from"] = injected
    asked = asked_objects(kinds)
    first = _webhook("pods", options, kinds, asked["pods"])
    first["failurePolicy"] = options.failure_policy
    first["matchConditions"] = asked["matchConditions"]
    second = _webhook("workloads", options, kinds, asked["workloads"])
    second["failurePolicy"] = "Ignore"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [first, second],
    }


def always_excluded(options: WebhookOptions, kinds: Kinds) -> dict[str, str]:
    """Return the namespaces that the webhook never covers, and why."""
    found = {one.name: one.reason for one in kinds.file.excluded_namespaces if not one.operator}
    found[options.namespace] = _GATE_REASON
    return {**found, **dict.fromkeys(options.operators, _operator_reason(kinds))}


def _operator_reason(kinds: Kinds) -> str:
    return next((one.reason for one in kinds.file.excluded_namespaces if one.operator), "")


def _reasons(options: WebhookOptions, kinds: Kinds) -> str:
    return "; ".join(f"{name}: {why}" for name, why in always_excluded(options, kinds).items())


def _webhook(name: str, options: WebhookOptions, kinds: Kinds, rules: list[Object]) -> Object:
    service = {"name": NAME, "namespace": options.namespace, "path": PATH, "port": 443}
    client: Object = {"service": service}
    if options.ca_bundle is not None:
        client["caBundle"] = options.ca_bundle
    return {
        "name": f"{name}.compatgate.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": options.timeout_s,
        "matchPolicy": "Equivalent",
        "clientConfig": client,
        "namespaceSelector": selected(options, kinds),
        "rules": rules,
    }


def _rule(kind: PodKind, subresources: tuple[str, ...] = ()) -> Object:
    return {
        "apiGroups": [kind.group],
        "apiVersions": ["*"],
        "resources": [kind.resource, *(kind.resource + sub for sub in subresources)],
        "operations": ["CREATE", "UPDATE"],
        "scope": kind.scope,
    }


def _metadata(namespace: str | None) -> Object:
    where = {"namespace": namespace} if namespace else {}
    return {"name": NAME, **where, "labels": dict(_PART_OF)}
