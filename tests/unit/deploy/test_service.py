"""Files that name the gate's Service name the one that `k8s manifests --webhook` prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from compatgate.service.admission.kinds import load_kinds
from compatgate.service.admission.manifests import WebhookOptions, url, webhook_objects

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted(path for path in DEPLOY.glob("**/*") if path.is_file()),
    *sorted((ROOT / "compatgate" / "cli").glob("**/*.py")),
]
URL = re.compile(r"[a-z]+://[^\s\"'`<>,)}\]]*\.svc\b[^\s\"'`<>,)}\]]*")
CA = {"name": "compatgate-ca", "mountPath": "/compatgate", "readOnly": True}
VARIABLE = {"name": "SSL_CERT_FILE", "value": "/compatgate/ca.crt"}
TRUSTING = ["argo-rollouts/trust.yaml", "flagger/trust.yaml"]


def urls() -> Iterator[tuple[str, str]]:
    """Each URL of a Service of a cluster, with the file that names it."""
    for path in FILES:
        for found in URL.findall(path.read_text()):
            stated = found.rstrip(".").replace("NAMESPACE", "compatgate")
            yield str(path.relative_to(ROOT)), stated


def shipped(kind: str, name: str = "compatgate") -> dict[str, Any]:
    """An object as it is printed without options."""
    found = webhook_objects(WebhookOptions(), load_kinds())
    (one,) = [o for o in found if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return one


@pytest.mark.parametrize(("file", "stated"), sorted(set(urls())))
def test_a_url_is_that_of_the_shipped_service(file: str, stated: str) -> None:
    service, certificate = shipped("Service"), shipped("Certificate", "compatgate-tls")
    (port,) = service["spec"]["ports"]
    parts = urlsplit(stated)
    assert parts.scheme == port["name"] == "https", f"{file}: {stated}"
    assert (parts.port or 443) == port["port"], f"{file}: {stated}"
    assert parts.hostname in certificate["spec"]["dnsNames"], f"{file}: {stated}"
    metadata = service["metadata"]
    assert parts.hostname == f"{metadata['name']}.{metadata['namespace']}.svc"


def test_the_examples_that_run_in_a_cluster_name_it() -> None:
    named = {file for file, _ in urls()}
    assert {
        "deploy/argo-rollouts/analysis-template.yaml",
        "deploy/flagger/canary.yaml",
        "deploy/argo-rollouts/analysis-template-files.yaml",
        "deploy/ci/tekton/compatgate-check.yaml",
        "deploy/helm-hook/values.yaml",
        "deploy/terraform/main.tf",
        "docs/how-to/deploy-webhooks.md",
        "docs/how-to/driver-rollouts.md",
        "docs/how-to/nodes.md",
    } <= named
    assert url("compatgate") in (ROOT / "docs" / "how-to" / "deploy-webhooks.md").read_text()


def test_the_page_has_the_gate_served_where_the_service_leads() -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    text = re.search(r"^compatgate serve --host 0.0.0.0 .*\\\n.*$", page, re.MULTILINE)
    assert text is not None
    words = shlex.split(text[0].replace("\\\n", " "))
    (port,) = shipped("Service")["spec"]["ports"]
    assert words[words.index("--port") + 1] == str(port["targetPort"])
    assert words[words.index("--tls-cert") + 1].endswith("/tls.crt")
    assert words[words.index("--tls-key") + 1].endswith("/tls.key")
    assert shipped("Certificate", "compatgate-tls")["spec"]["secretName"] in page


@pytest.mark.parametrize("file", TRUSTING)
def test_who_asks_over_tls_trusts_the_authority_of_the_service(file: str) -> None:
    pod = yaml.load((DEPLOY / file).read_text(), yaml.CSafeLoader)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert VARIABLE in container["env"]
    assert container["volumeMounts"] == [CA]
    assert pod["volumes"] == [{"name": CA["name"], "configMap": {"name": CA["name"]}}]
    page = (ROOT / "docs" / "how-to" / "deploy-webhooks.md").read_text()
    assert f"create configmap {CA['name']} --from-file=ca.crt" in page
    assert f"patch deployment {container['name']} --patch-file deploy/{file}" in page
