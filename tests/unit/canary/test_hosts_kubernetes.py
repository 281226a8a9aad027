"""``[host.kubernetes]`` is read whole or refused with every mistake; its page is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compatgate.canary.hosts import Host, Kubernetes, Toleration
from compatgate.canary.hosts_file import read_hosts
from compatgate.errors import ManyProblems

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "kubernetes-executor.md"


def _read(tmp_path: Path, text: str) -> list[Host]:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    return read_hosts(file)


def test_a_host_needs_a_namespace_and_has_defaults_for_the_rest(tmp_path: Path) -> None:
    (host,) = _read(
        tmp_path,
        '[[host]]\nname = "a"\nexecutor = "kubernetes"\n[host.kubernetes]\nnamespace = "c"\n',
    )
    assert host == Host(
        "a", executor="kubernetes", health="none", kubernetes=Kubernetes(namespace="c")
    )


def test_the_example_of_the_page_is_what_it_says(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (host,) = _read(tmp_path, example)
    assert host.kubernetes == Kubernetes(
        kubeconfig=str(tmp_path / "kubeconfig"),
        context="staging",
        namespace="compatgate-canary",
        resource="nvidia.com/gpu",
        node_selector={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
        tolerations=(Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),),
        queue="canary",
        image_pull_secrets=("registry",),
        service_account="canary",
        runtime_class="nvidia",
        images={"gemm": "registry.example/canary/gemm@sha256:" + "0" * 64},
        wait="12h",
    )
    assert (host.gpu, host.slots, host.health) == ("A100-SXM4-80GB", 8, "none")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "host[0].kubernetes: namespace is missing"),
        ('namespace = "A"', "host[0].kubernetes.namespace"),
        ('namespace = "c"\nnamespaces = "d"', "unknown key (did you mean namespace?)"),
        ('namespace = "c"\nresource = "gpu"', "host[0].kubernetes.resource"),
        ('namespace = "c"\nnode_selector = {"a b" = "c"}', "host[0].kubernetes.node_selector"),
        ('namespace = "c"\nin_cluster = true\ncontext = "x"', "together with in_cluster"),
        ('namespace = "c"\ntolerations = [{value = "x"}]', "tolerations[0].key: is missing"),
        ('namespace = "c"\ntolerations = [{key = "k", operator = "Exists", value = "x"}]',
         "cannot be set with operator Exists"),
        ('namespace = "c"\nimages = {gemm = "A:B:C"}', "host[0].kubernetes.images.gemm"),
        ('namespace = "c"\nwait = "soon"', "host[0].kubernetes.wait"),
        (
            'namespace = "c"\nqueue = "q"\nvolcano_queue = "v"',
            "kubernetes.volcano_queue: 'v' cannot",
        ),
        ('namespace = "c"\nvolcano_queue = "v"\nscheduler = "kai"', "must be volcano"),
        ('namespace = "c"\npriority_class = "p"', "needs a queue of Kueue"),
        ('namespace = "c"\nclaims = {one = "t"}', "host[0].kubernetes.claims"),
        ('namespace = "c"\ndevices = {"rdma/hca" = 0}', "host[0].kubernetes.devices"),
        ('namespace = "c"\nclaims = {1 = "t"}\ndevices = {"nvidia.com/gpu" = 1}', "are claimed"),
        ('namespace = "c"\nnetworks = ["a b"]', "host[0].kubernetes.networks"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_field_and_value(tmp_path: Path, lines: str, said: str) -> None:
    head = '[[host]]\nname = "a"\nexecutor = "kubernetes"\n[host.kubernetes]\n'
    with pytest.raises(ManyProblems) as error:
        _read(tmp_path, f"{head}{lines}\n")
    assert said in error.value.detail


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('executor = "kubernetes"', "at least [host.kubernetes] namespace"),
        ('kubernetes = {namespace = "c"}', "kubernetes: is not a table of the docker"),
        ('executor = "kubernetes"\nkubernetes = {namespace = "c"}\nhealth = "local"',
         "the GPUs are on the nodes"),
        ('executor = "kubernetes"\nkubernetes = {namespace = "c"}\nendpoint = "unix:///x"',
         "the kubernetes executor has no engine"),
    ],
)  # fmt: skip
def test_what_belongs_to_another_executor_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ManyProblems) as error:
        _read(tmp_path, f'[[host]]\nname = "a"\n{line}\n')
    assert said in error.value.detail
