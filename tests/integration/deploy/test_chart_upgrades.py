"""`helm upgrade` keeps what is trusted in the cluster, and the policy of the webhook."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helm_cluster import NAMESPACE, Cluster, serving
from kubectl_tools import helm, rendered

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "compatgate"
DAY_S = 86400
Upgrade = Callable[..., list[dict[str, Any]]]
Object = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster without the release."""
    with serving(Cluster()) as made:
        yield made


@pytest.fixture
def upgrade(cluster: Cluster, tmp_path: Path) -> Upgrade:
    """Renders the chart against the cluster, and applies what came out."""
    config = cluster.kubeconfig(tmp_path)

    def run(**values: Any) -> list[Object]:
        words = ["template", "compatgate", CHART, "--namespace", NAMESPACE, "--values", "-",
                 "--set", "image.repository=registry.example/compatgate",
                 "--dry-run=server", "--disable-openapi-validation"]  # fmt: skip
        found = rendered(helm(*words, stdin=json.dumps(values), kubeconfig=config).stdout)
        cluster.apply(found)
        return found

    return run


def one(found: list[Object], kind: str, name: str) -> Object:
    (each,) = [o for o in found if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return each


def certificates(found: list[Object]) -> tuple[str, str, str]:
    """Authority, bundle and certificate, base64; the webhook has the same bundle."""
    tls = one(found, "Secret", "compatgate-tls")["data"]
    hooks = one(found, "ValidatingWebhookConfiguration", "compatgate")["webhooks"]
    assert {hook["clientConfig"]["caBundle"] for hook in hooks} == {tls["ca.crt"]}
    return one(found, "Secret", "compatgate-ca")["data"]["tls.crt"], tls["ca.crt"], tls["tls.crt"]


def trusts(bundle: str, certificate: str, folder: Path) -> bool:
    """Whether a client with the bundle accepts the certificate for the Service's name."""
    for name, text in (("bundle.pem", bundle), ("leaf.pem", certificate)):
        (folder / name).write_bytes(base64.b64decode(text))
    command = ["openssl", "verify", "-CAfile", folder / "bundle.pem", "-verify_hostname",
               f"compatgate.{NAMESPACE}.svc", folder / "leaf.pem"]  # fmt: skip
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def live(cluster: Cluster, name: str) -> Object:
    return cluster.objects["Secret", NAMESPACE, name]


def test_an_upgrade_keeps_certificates_until_they_near_their_end(
    cluster: Cluster, upgrade: Upgrade, tmp_path: Path
) -> None:
    first = certificates(upgrade())
    assert trusts(first[1], first[2], tmp_path)
    assert certificates(upgrade()) == first
    near = str(int(time.time()) + 100 * DAY_S)
    live(cluster, "compatgate-tls")["metadata"]["annotations"]["compatgate.dev/ends"] = near
    authority, bundle, certificate = certificates(upgrade())
    assert (authority, bundle) == first[:2], "clients trust the new certificate at once"
    assert certificate != first[2]
    assert trusts(first[1], certificate, tmp_path)
    ends = live(cluster, "compatgate-tls")["metadata"]["annotations"]["compatgate.dev/ends"]
    assert int(ends) == pytest.approx(time.time() + 365 * DAY_S, abs=DAY_S)


def test_another_name_of_the_service_needs_another_certificate(
    upgrade: Upgrade, tmp_path: Path
) -> None:
    first = certificates(upgrade())
    second = certificates(upgrade(clusterDomain="corp.example"))
    assert second[:2] == first[:2]
    assert second[2] != first[2]
    assert trusts(second[1], second[2], tmp_path)


@pytest.mark.parametrize("why", ["in its last year", "deleted"])
def test_a_new_authority_is_trusted_beside_the_one_before(
    why: str, cluster: Cluster, upgrade: Upgrade, tmp_path: Path
) -> None:
    first = certificates(upgrade())
    if why == "deleted":
        del cluster.objects["Secret", NAMESPACE, "compatgate-ca"]
    else:
        notes = live(cluster, "compatgate-ca")["metadata"]["annotations"]
        notes["compatgate.dev/ends"] = str(int(time.time()) + 300 * DAY_S)
    second = certificates(upgrade())
    assert second[0] != first[0]
    assert trusts(second[1], second[2], tmp_path), "a replica that has the new files"
    assert trusts(second[1], first[2], tmp_path), "a replica that has not"
    assert not trusts(first[1], second[2], tmp_path)
    if why != "deleted":
        return
    assert certificates(upgrade()) == second
    del cluster.objects["Secret", NAMESPACE, "compatgate-ca"]
    third = certificates(upgrade())
    assert base64.b64decode(third[1]).count(b"BEGIN CERTIFICATE") == 2, "the bundle does not grow"
    assert trusts(third[1], second[2], tmp_path)


def test_an_upgrade_leaves_the_policy_to_the_job(cluster: Cluster, upgrade: Upgrade) -> None:
    upgrade(tls={"mode": "certManager"})
    for live_policy, wanted, job in (
        ("Ignore", "Ignore", ""),
        ("Ignore", "Fail", "Fail"),
        ("Fail", "Fail", "Fail"),
        ("Fail", "Ignore", "Ignore"),
    ):
        key = ("ValidatingWebhookConfiguration", "", "compatgate")
        cluster.objects[key]["webhooks"][0]["failurePolicy"] = live_policy
        found = upgrade(webhook={"failurePolicy": wanted}, tls={"mode": "certManager"})
        hooks = one(found, "ValidatingWebhookConfiguration", "compatgate")["webhooks"]
        assert [hook["failurePolicy"] for hook in hooks] == [live_policy, "Ignore"]
        called = [o["spec"]["template"]["spec"]["containers"][0]["args"]
                  for o in found if o["kind"] == "Job"]  # fmt: skip
        assert [f"--failure-policy={job}" in args for args in called] == ([True] if job else [])
