"""The examples of pages, run in order on a service of their own."""

from __future__ import annotations

import copy
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from catalogue import own_cache
from image_blobs import distribution, layer_of
from page_examples import DOCS, HOST, matches, read_examples, run_example

from compatgate.documents.sources import read_paths
from compatgate.service.audit.envelope import Reason
from compatgate.service.cluster.kinds import parse_kinds
from compatgate.service.cluster.pods import GPU_ANNOTATION
from compatgate.service.cluster.schemas import REVIEW_EXAMPLES

REST, NODES = DOCS / "reference" / "rest.md", DOCS / "how-to" / "nodes.md"
KUBERNETES, SIGNING = DOCS / "how-to" / "kubernetes.md", DOCS / "how-to" / "signing.md"
ADMISSION = DOCS / "reference" / "admission.md"
IMAGE = "registry.example/team/app"
TORCH = {**distribution("torch", "2.4.1+cu124"), **distribution("nvidia-cudnn-cu12", "9.1.0.70")}


@pytest.mark.parametrize(
    ("page", "count"), [(REST, 19), (NODES, 9), (ADMISSION, 2)], ids=["rest", "nodes", "k8s"]
)
def test_the_examples_print_what_the_page_says(
    page: Path, count: int, server: Any, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    address, examples = f"http://127.0.0.1:{server.port}", read_examples(page)
    assert len(examples) == count
    own = {"TOKEN": server.token}
    if page == NODES:
        own |= {"COMPATGATE_SERVER": address, "COMPATGATE_TOKEN": server.token}
    for command, expected in examples:
        done = run_example(command.replace(HOST, address), tmp_path, **own)
        assert page != REST or done.returncode == 0, command
        assert matches(expected, done.stdout), f"{command}\n{done.stdout}{done.stderr}"


def test_the_page_names_every_scope_and_every_resource() -> None:
    text = REST.read_text()
    for word in ("read", "gate", "operate", "bless", "admin", "/metrics", "If-Match", "openapi"):
        assert word in text


def test_the_files_of_the_page_are_what_the_program_reads(tmp_path: Path) -> None:
    waiver, kinds = (
        re.search(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.DOTALL)[1]  # type: ignore[index]
        for page in (KUBERNETES, ADMISSION)
    )
    (tmp_path / "waiver.yaml").write_text(waiver)
    assert read_paths([str(tmp_path / "waiver.yaml")])
    assert yaml.load(waiver, yaml.CSafeLoader)["spec"]["rules"] == ["CG822"]
    assert parse_kinds(kinds.encode(), "page").kinds[0].kind == "Training"


def test_the_gate_refuses_the_pod_that_the_page_tries_it_with(server: Any) -> None:
    text = KUBERNETES.read_text()
    said = re.search(r"^- `denied the request: \.\.\. (.*?)`", text, re.MULTILINE)
    annotations = dict(re.findall(r"--annotations (\S+?)=(\S+)", text))
    assert said is not None
    assert set(annotations) == {GPU_ANNOTATION, "compatgate.dev/target"}, (
        "else the cluster does not ask"
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gate-test", "annotations": annotations},
        "spec": {"containers": [{"name": "gate-test", "image": "registry.example/none"}]},
    }
    review = copy.deepcopy(REVIEW_EXAMPLES["pod"])
    review["request"] |= {"object": pod, "dryRun": True, "namespace": "default"}
    sent = server.ask("POST", "/hooks/kubernetes/validate", review)
    answer = sent.json()["response"]
    assert answer["allowed"] is False
    assert said[1] in answer["status"]["message"]


def test_the_examples_of_signing_print_what_the_page_says(
    serve: Any, registry: Any, tmp_path: Path
) -> None:
    if shutil.which("curl") is None or shutil.which("openssl") is None:
        pytest.skip("no curl, or no openssl")
    image = registry.push(layer_of(TORCH))
    own = {"XDG_CACHE_HOME": own_cache(tmp_path / "cache"), "DOCKER_CONFIG": str(tmp_path)}
    name, tag = image.reference.rsplit(":", 1)
    address, examples = "", read_examples(SIGNING)
    assert len(examples) == 10
    for command, expected in examples:
        if not address and "openssl" not in command:
            options = ("--signing-key", str(tmp_path / "gate.pem"), "--registry", registry.host)
            address = f"http://127.0.0.1:{serve(*options, **own).port}"
        text = command.replace(HOST, address).replace(f"{IMAGE}:1.2", f"{name}:{tag}")
        done = run_example(text, tmp_path, **own)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert matches(expected.replace(IMAGE, name), done.stdout), f"{command}\n{done.stdout}"


def test_every_reason_of_a_refusal_is_on_the_page() -> None:
    text = SIGNING.read_text()
    assert [reason for reason in get_args(Reason) if f"`{reason}`" not in text] == []
