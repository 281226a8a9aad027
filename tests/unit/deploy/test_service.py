"""Files that name the gate's Service name the one that the Helm chart makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted(path for path in DEPLOY.glob("**/*") if path.is_file()),
    *sorted((ROOT / "compatgate" / "cli").glob("**/*.py")),
]
VALUES = yaml.load((DEPLOY / "helm/compatgate/values.yaml").read_text(), yaml.CSafeLoader)
HOST = "compatgate.compatgate.svc"
"""Service of a release with the name and the namespace that the documentation uses."""
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


@pytest.mark.parametrize(("file", "stated"), sorted(set(urls())))
def test_a_url_is_that_of_the_shipped_service(file: str, stated: str) -> None:
    parts = urlsplit(stated)
    assert parts.scheme == "https", f"{file}: {stated}"
    assert (parts.port or 443) == VALUES["service"]["port"], f"{file}: {stated}"
    assert parts.hostname == HOST, f"{file}: {stated}"


def test_the_examples_that_run_in_a_cluster_name_it() -> None:
    named = {file for file, _ in urls()}
    assert {
        "deploy/argo-rollouts/analysis-template.yaml",
        "deploy/flagger/canary.yaml",
        "deploy/argo-rollouts/analysis-template-files.yaml",
        "deploy/ci/tekton/compatgate-check.yaml",
        "deploy/helm-hook/values.yaml",
        "docs/how-to/deploy-webhooks.md",
        "docs/how-to/driver-rollouts.md",
        "docs/how-to/nodes.md",
    } <= named
    assert f"https://{HOST}" in (ROOT / "docs" / "how-to" / "deploy-webhooks.md").read_text()


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
