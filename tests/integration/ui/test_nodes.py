"""The pages of nodes and of drift: what is seen, who says so, and forgetting a node."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import msgspec
import pytest
from ui_marks import post

from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.nodes.schemas import Report

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "535.183.01",
}
OWN = {"driver": "550.54.15", "gpus": [{"gpu": "NVIDIA A100-SXM4-80GB", "count": 8}]}
KUBELET = {"nvidia.com/gpu": 8}


@pytest.fixture
def tell(stocked):
    """Reports nodes to the gate."""

    def report(*nodes, cluster="eu"):
        stocked.nodes.report(
            msgspec.convert({"cluster": cluster, "nodes": nodes}, Report), by="nodes-job"
        )

    return report


def test_nodes_are_narrowed_and_exported(pages, tell):
    long_ago = clock.now() - timedelta(days=3)
    tell(
        {"name": "ok-1", "labels": A100, "allocatable": KUBELET},
        {"name": "odd-1", "labels": A100, "probe": OWN},
        {"name": "gone-1", "labels": A100, "seen_at": long_ago},
    )
    client = pages()

    def names(query):
        lines = client.get(f"/ui/nodes?format=csv&{query}").text.splitlines()[1:]
        return [line.partition(",")[0] for line in lines]

    assert names("") == ["gone-1", "odd-1", "ok-1"]
    assert names("sort=-name") == ["ok-1", "odd-1", "gone-1"]
    assert names("search=O") == ["gone-1", "odd-1", "ok-1"]
    assert names("search=d-1") == ["odd-1"]
    assert names("search=%25") == []
    assert names("stale=yes") == ["gone-1"]
    assert names("disagrees=yes") == ["odd-1"]
    assert names("driver=550.54.15") == ["odd-1"]
    assert names("driver_state=not-blessed") == ["odd-1"]
    assert names("target=prod-a100&gpu=a100-sxm4-80gb&stale=no") == ["odd-1", "ok-1"]
    assert names("cluster=us") == []


def test_the_first_visit_says_how_nodes_become_known(pages):
    for path in ("nodes", "drift"):
        assert "compatgate k8s nodes --file - --report" in pages().get(f"/ui/{path}").text


@pytest.mark.parametrize(
    "path",
    ["nodes?stale=maybe", "nodes?driver_state=good", "nodes?sort=colour", "nodes?cursor=x",
     "drift?what=os", "drift?sort=x", "drift?cursor=%F0", "nodes/n1?colour=red"],
)  # fmt: skip
def test_a_bad_address_says_what_is_wrong(pages, path):
    answer = pages().get(f"/ui/{path}")
    assert answer.status_code == 400
    assert path.partition("?")[2].partition("=")[0] in answer.text


def test_a_node_that_is_not_known_says_how_it_would_be(pages):
    answer = pages().get("/ui/nodes/no-such-node")
    assert answer.status_code == 404
    assert "compatgate k8s nodes --report" in answer.text


def test_a_node_says_who_says_what_and_who_decides(pages, tell):
    tell({"name": "gpu-17", "labels": A100, "allocatable": {"nvidia.com/gpu": 7}, "probe": OWN})
    shown = pages().get("/ui/nodes/gpu-17?cluster=eu").text
    assert "It has driver 550.54.15, prod-a100 declares 535.183.01" in shown
    assert "the driver itself 550.54.15: the driver&#39;s own report decides" in shown
    assert "The labels make 8 of nvidia.com/gpu, the kubelet hands out 7" in shown
    assert "The driver&#39;s own report decides about driver and GPUs." in shown
    assert "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB" in shown
    assert "/ui/what-if?target=prod-a100&amp;driver=550.54.15" in shown
    assert "stale</span> Last seen" not in shown


def test_a_node_shows_its_taints(pages, tell):
    taints = [
        {"key": "team", "value": "a", "effect": "NoSchedule"},
        {"key": "x", "effect": "NoExecute"},
    ]
    tell({"name": "gpu-17", "labels": A100, "taints": taints}, {"name": "gpu-18", "labels": A100})
    shown = pages().get("/ui/nodes/gpu-17").text
    assert "<code>team=a:NoSchedule</code>" in shown
    assert "<code>x:NoExecute</code>" in shown
    assert "Taints</h2>" not in pages().get("/ui/nodes/gpu-18").text


def test_of_nodes_with_one_name_the_cluster_is_asked_for(pages, tell):
    for cluster in ("eu", "us"):
        tell({"name": "n1", "labels": A100}, cluster=cluster)
    shown = pages().get("/ui/nodes/n1").text
    assert "/ui/nodes/n1?cluster=us" in shown
    assert pages().get("/ui/nodes/n1?cluster=us").status_code == 200
    assert pages().get("/ui/nodes/n1?cluster=asia").status_code == 404


def test_a_node_is_found_by_the_search(pages, tell):
    tell({"name": "gpu-17", "labels": A100})
    assert "/ui/nodes/gpu-17?cluster=eu" in pages().get("/ui/find?q=PU-17").text


def test_a_node_that_is_gone_is_removed_with_a_reason(pages, stocked, tell):
    for cluster in ("eu", "us"):
        tell({"name": "n1", "labels": A100}, cluster=cluster)
    client = pages("read", "operate")
    refused = post(client, "nodes/n1/remove", cluster="eu", reason=" ")
    assert refused.status_code == 400
    assert "reason" in refused.text
    answer = post(client, "nodes/n1/remove", cluster="eu", reason="scrapped")
    assert answer.status_code == 303
    assert "Removed n1 of eu" in client.get(answer.headers["Location"]).text
    assert stocked.nodes.clusters_of("n1") == ("us",)
    link = stocked.audit.list_audit(action="node.remove").items[0]
    assert (link.subject, link.detail["reason"]) == ("eu/n1", "scrapped")


def test_removing_needs_the_scope_and_an_own_form(pages, stocked, tell):
    tell({"name": "n1", "labels": A100})
    reader = pages("read", "bless")
    assert "Remove node" not in reader.get("/ui/nodes/n1").text
    assert post(reader, "nodes/n1/remove", cluster="eu", reason="x").status_code == 403
    assert pages("operate").post("/ui/nodes/n1/remove", data={"reason": "x"}).status_code == 403
    assert post(pages("operate"), "nodes/n2/remove", reason="x").status_code == 404
    assert stocked.nodes.clusters_of("n1") == ("eu",)


def test_drift_says_how_many_of_how_many_since_when_and_what_no_longer_holds(pages, tell):
    tell(*({"name": f"ok-{n}", "labels": A100} for n in range(4)))
    at = clock.now() - timedelta(hours=3)
    tell({"name": "odd-1", "labels": A100, "probe": OWN, "seen_at": at})
    shown = pages().get("/ui/drift").text
    assert "1 of 5 nodes of prod-a100 reports driver 550.54.15 instead of 535.183.01" in shown
    assert at.strftime("%Y-%m-%d %H:%M:%S") in shown
    assert "breaks 4 of 4 entries: tf215-cu122" in shown
    assert "/ui/what-if?target=prod-a100&amp;driver=550.54.15" in shown
    assert "/ui/nodes?target=prod-a100&amp;driver=550.54.15" in shown
    exported = pages().get("/ui/drift?format=csv").text.splitlines()
    assert exported[1].startswith("odd-1,driver,550.54.15,535.183.01,not-blessed,prod-a100")
    assert "odd-1" not in pages().get("/ui/drift?what=gpu").text
    assert "odd-1" not in pages().get("/ui/drift?target=inference-l4").text


def test_what_needs_the_right_to_ask_is_not_offered_without_it(pages, tell):
    tell({"name": "odd-1", "labels": A100, "probe": OWN})
    for path in ("drift", "nodes/odd-1"):
        shown = pages(anonymous=("read",)).get(f"/ui/{path}").text
        assert "what-if?" not in shown
        assert "breaks" not in shown


def test_a_target_that_was_changed_later_is_said_to_be(pages, stocked, tell):
    tell({"name": "n1", "labels": A100, "seen_at": clock.now() - timedelta(hours=3)})
    document = stocked.matrix.get("Target", "prod-a100").document
    pool = {**document["spec"]["pools"][0], "driver": "550.54.15"}
    body = {**document, "spec": {**document["spec"], "pools": [pool]}}
    stocked.matrix.change("Target", "prod-a100", body, Authorship("mara", "the new driver"))
    shown = pages().get("/ui/drift").text
    assert "1 of 1 node of prod-a100 reports driver 535.183.01 instead of 550.54.15" in shown
    assert '<a href="/ui/revisions/2">revision 2</a>: the drift may have started then' in shown


def test_what_is_not_told_is_listed_and_not_tried(pages, tell):
    probe = {"driver": None, "gpus": OWN["gpus"]}
    tell({"name": "mute", "target": "prod-a100", "labels": {}, "probe": probe})
    shown = pages().get("/ui/drift").text
    assert "does not report its driver; the target declares 535.183.01" in shown
    assert "what-if?" not in shown


def test_hostile_text_is_text(pages, tell):
    gpus = [{"gpu": HOSTILE}]
    probe = {"driver": HOSTILE, "cuda": HOSTILE, "gpus": gpus}
    tell({"name": "n1", "target": "prod-a100", "labels": A100, "probe": probe})
    client = pages("read", "gate", "operate")
    for path in (
        "nodes",
        "nodes/n1",
        "drift",
        "drift?what=gpu",
        "find?q=n1",
        "targets/prod-a100",
        f"nodes?driver={HOSTILE}",
        f"nodes?search={HOSTILE}&gpu={HOSTILE}&cluster={HOSTILE}&target={HOSTILE}",
        f"drift?target={HOSTILE}&gpu={HOSTILE}&cluster={HOSTILE}",
        f"nodes/{quote(HOSTILE.replace('/', ''))}?cluster={HOSTILE}",
    ):
        answer = client.get(f"/ui/{path}")
        assert answer.status_code in (200, 404), path
        assert "<script>alert" not in answer.text, path
        assert "<img src=x" not in answer.text, path
    refused = post(client, "nodes/n1/remove", cluster="eu", reason="\0" + HOSTILE)
    assert refused.status_code == 400
    assert "<img src=x" not in refused.text


def test_what_lies_below_the_driver_is_shown_compared_and_tried(pages, tell):
    node = {"kernel-modules": "proprietary", "fabric-manager": "570.172.08", "kernel": "6.8.0-85"}
    gpus = [{"gpu": "NVIDIA H100 80GB HBM3", "count": 8}]
    own = {"driver": "580.95.05", "gpus": gpus, "platform": "dgx/h100", "node": node}
    tell({"name": "h100-02", "target": "staging-h100", "probe": own})
    client = pages()

    page = client.get("/ui/nodes/h100-02").text
    for shown in ("dgx/h100", "Fabric Manager", "570.172.08", "It has NVIDIA kernel modules"):
        assert shown in page
    drift = client.get("/ui/drift?what=fabric-manager").text
    assert "reports Fabric Manager 570.172.08 instead of 580.95.05" in drift
    link = "/ui/what-if?target=staging-h100&pool=h100-80&set=fabric-manager%3D570.172.08"
    assert link.replace("&", "&amp;") in page
    tried = client.get(link)
    assert tried.status_code == 200
    assert 'value="fabric-manager=570.172.08"' in tried.text
    wrong = client.get("/ui/what-if?target=staging-h100&set=fabric-manager%3Dnewest")
    assert wrong.status_code == 400
    assert "is not a version" in wrong.text
