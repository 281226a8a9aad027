"""Creating targets and entries in the browser, and importing files: nothing typed is lost."""

from __future__ import annotations

import html
import io
import re

import pytest
from ui_marks import form_token, post

SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA L4                      On  |   00000000:01:00.0 Off |                    0 |
| N/A   33C    P8             12W /   72W |       0MiB /  23034MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
"""
NODES = """\
apiVersion: v1
kind: List
items:
- {kind: Node, metadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-L4,
   nvidia.com/cuda.driver-version.full: 550.54.15, kubernetes.io/arch: amd64}}}
- {kind: Node, metadata: {name: b, labels: {nvidia.com/gpu.product: NVIDIA-L4,
   nvidia.com/cuda.driver-version.full: 550.54.15, kubernetes.io/arch: amd64}}}
"""


def fields(page: str) -> dict[str, str]:
    """What the form of a page would send, its buttons left out."""
    found = {}
    form = page.partition("enctype=")[2].partition("</form>")[0]
    for tag in re.findall(r"<input [^>]*>", form):
        name, value = re.search(r'name="([^"]+)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and (" checked" in tag or "checkbox" not in tag) and "file" not in tag:
            found[name[1]] = html.unescape(value[1]) if value else ""
    for name, text in re.findall(r'<textarea name="([^"]+)"[^>]*>([^<]*)</textarea>', form):
        found[name] = html.unescape(text)
    for name, options in re.findall(r'<select name="([^"]+)"[^>]*>(.*?)</select>', form, re.S):
        chosen = re.search(r'<option value="([^"]*)" selected', options)
        found[name] = html.unescape(chosen[1]) if chosen else ""
    return found


@pytest.fixture
def client(pages):
    return pages("bless", "read")


def begin(client, path: str) -> dict[str, str]:
    return fields(client.get(f"/ui/{path}").text)


@pytest.mark.parametrize(
    ("text", "pool"),
    [(SMI, ("L4", "580.95.05", "1")), (NODES, ("L4", "550.54.15", "2"))],
    ids=["nvidia-smi", "kubectl get nodes"],
)
def test_a_target_is_made_from_pasted_text(client, stocked, text, pool):
    read = post(
        client, "new-target", **begin(client, "new-target") | {"pasted": text, "what": "read"}
    )
    typed = fields(read.text)
    assert tuple(typed[f"pool-0-{name}"] for name in ("gpu", "driver", "count")) == pool
    assert "pool-1-gpu" in typed  # room for one more
    filled = typed | {"name": "edge", "reason": "new rack", "what": "create"}
    made = post(client, "new-target", **filled)
    assert made.headers["Location"] == "/ui/targets/edge"
    document = stocked.matrix.get("Target", "edge").document
    assert document["spec"]["pools"][0]["driver"] == pool[1]
    assert document["spec"]["policy"] == {**document["spec"]["policy"], "mode": "enforce"}


def test_enter_in_a_field_checks_and_neither_reads_again_nor_creates(client):
    for path in ("new-target", "new-entry"):
        form = client.get(f"/ui/{path}").text.partition("enctype=")[2]
        assert re.search(r'<button name="what" value="(\w+)"', form)[1] == "check"


def test_text_of_no_known_kind_says_what_to_paste_and_stays(client):
    typed = begin(client, "new-target") | {"pasted": "hello <b>", "name": "edge", "what": "read"}
    answer = post(client, "new-target", **typed)
    assert answer.status_code == 400
    assert "kubectl get nodes" in answer.text
    assert fields(answer.text)["pasted"] == "hello <b>"
    assert fields(answer.text)["name"] == "edge"


def test_fields_and_yaml_changed_at_once_are_joined(client, stocked):
    typed = begin(client, "new-entry")
    own = typed["documents"].replace(
        "spec:", "spec:\n  needs: [bf16]\n  components: {cuda: '12.8.*'}"
    )
    filled = {"name": "torch28", "targets": "prod-a100", "gpus": "A100-SXM4-80GB", "documents": own}
    checked = fields(post(client, "new-entry", **typed | filled | {"what": "check"}).text)
    assert checked["components"] == "cuda 12.8.*"
    again = checked | {
        "components": "cuda 12.8.*\r\ntorch ~=2.8.0",
        "reason": "try",
        "what": "create",
    }
    assert post(client, "new-entry", **again).status_code == 303
    spec = stocked.matrix.get("Entry", "torch28").document["spec"]
    assert spec["components"] == {"cuda": "12.8.*", "torch": "~=2.8.0"}
    assert (spec["needs"], spec["status"]) == (["bf16"], "candidate")


def test_a_version_like_a_number_keeps_its_zero(client):
    typed = begin(client, "new-entry")
    own = (
        "kind: Entry\nmetadata: {name: a}\nspec: {targets: [prod-a100], components: {cuda: 12.10}}"
    )
    answer = post(client, "new-entry", **typed | {"documents": own, "owner": "ml", "what": "check"})
    assert fields(answer.text)["components"] == "cuda 12.10"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"documents": "a: [1"}, "not valid YAML"),
        ({"documents": "- 1\n- 2"}, "one document"),
        ({"labels": "tier"}, "is not a label"),
        ({"pool-0-gpu": "H9999"}, "H9999"),
        ({"pool-0-count": "many"}, "must be a whole number"),
        ({"name": "prod-a100"}, "exists"),
        ({"what": "fly"}, "is not an action"),
        ({"reason": ""}, "reason"),
        ({"documents": "kind: Entry\nspec: {pools: 3}", "pool-0-gpu": "L4 "}, "another type"),
    ],
    ids=["syntax", "list", "label", "gpu", "count", "name", "action", "reason", "type"],
)
def test_what_is_wrong_is_said_and_everything_typed_stays(client, stocked, given, said):
    pool = {"name": "l4", "gpu": "L4", "driver": "550.54.15", "count": "2"}
    filled = {f"pool-0-{key}": value for key, value in pool.items()}
    filled |= {
        "name": "edge",
        "reason": "new rack",
        "owner": "Team & Co",
        "what": "create",
        **given,
    }
    answer = post(client, "new-target", **begin(client, "new-target") | filled)
    assert 400 <= answer.status_code < 500
    assert said in html.unescape(answer.text)
    kept = fields(answer.text)
    assert {name: kept[name].strip() for name in filled if name not in ("what", "documents")} == {
        name: value.strip() for name, value in filled.items() if name not in ("what", "documents")
    }
    assert stocked.matrix.list_targets(search="edge").items == ()


def test_an_import_shows_its_difference_before_it_is_made(client, stocked):
    body = "kind: Entry\nmetadata: {name: uploaded}\napiVersion: compatgate.dev/v1\n"
    spec = "spec: {targets: [prod-a100], components: {cuda: '12.4.*'}, status: candidate}\n"
    before = stocked.gate.snapshot().revision
    texts = (body + spec, (body + spec).replace("uploaded", "second"))
    files = [(io.BytesIO(text.encode()), "entry.yaml") for text in texts]
    shown = post(client, "import", files=files, what="check")
    assert shown.status_code == 200
    assert "2 documents would change" in shown.text
    assert stocked.gate.snapshot().revision == before
    refused = post(client, "import", **fields(shown.text) | {"what": "import"})
    assert (refused.status_code, "reason" in refused.text) == (400, True)
    again = fields(refused.text) | {"what": "import", "reason": "two more"}
    made = post(client, "import", **again)
    assert made.headers["Location"] == f"/ui/revisions/{before + 1}"
    assert stocked.matrix.get("Entry", "second").revision == before + 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"documents": ""}, "No documents"),
        ({"documents": "kind: Entry\nmetadata: {nam: x}"}, "did you mean name"),
        ({"files": (io.BytesIO(b"\xff\xfe"), "a.yaml")}, "is not UTF-8 text"),
    ],
)
def test_a_wrong_import_keeps_its_text(client, given, said):
    answer = post(client, "import", **given, what="check")
    assert answer.status_code == 400
    assert said in html.unescape(answer.text)
    assert fields(answer.text)["documents"] == given.get("documents", "")


def test_other_pages_begin_an_entry_with_a_target_and_versions(client):
    typed = begin(client, "new-entry?targets=prod-a100&components=torch+~%3D2.8.0")
    assert (typed["targets"], typed["components"]) == ("prod-a100", "torch ~=2.8.0")
    assert "~=2.8.0" in typed["documents"]
    assert client.get("/ui/new-entry?components=torch").status_code == 400


def filled(client, path: str, **given: str) -> dict[str, str]:
    """The fields of a form with some changed."""
    return {**begin(client, path), **given}


def live(client, path: str, part: str, **given: str):
    """What the page asks by itself while somebody types."""
    data = {"form_token": form_token(client), **filled(client, path, **given)}
    return client.post(
        f"/ui/{path.partition('?')[0]}",
        data=data,
        headers={"HX-Request": "true", "HX-Target": part},
    )


ASKED = {"target": "prod-a100", "stack": {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}}


def test_a_change_shows_what_it_does_before_it_is_made(client, stocked):
    stocked.gate.decide(ASKED, asked_by="ci-build", source="rest")
    before = stocked.gate.snapshot().revision
    shown = post(
        client, "entries/torch24-cu124/edit",
        **filled(client, "entries/torch24-cu124/edit", status="revoked", what="effects"),
    ).text  # fmt: skip
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown))
    assert "newly denied: 1 decision, 512 nodes" in words
    assert "asked by ci-build" in words
    assert "before warn" in words  # the matrix, recoloured
    assert "after fail" in words
    assert "512 declared nodes on 1 target" in words
    assert stocked.gate.snapshot().revision == before


def test_a_stored_document_is_changed_unless_someone_else_did_meanwhile(client, stocked, by):
    path = "targets/prod-a100/edit"
    typed = filled(client, path, reason="quiet nights", mode="audit", what="create")
    document = stocked.matrix.get("Target", "prod-a100").document
    made = post(client, path, **typed)
    assert made.headers["Location"] == "/ui/targets/prod-a100"
    changed = stocked.matrix.get("Target", "prod-a100").document
    wanted = {**document["spec"]["policy"], "mode": "audit"}
    assert changed["spec"] == {**document["spec"], "policy": wanted}
    late = post(client, path, **typed | {"mode": "warn"})
    assert late.status_code == 409
    assert "meanwhile" in late.text
    assert fields(late.text)["reason"] == "quiet nights"


def test_a_document_keeps_its_name_and_its_kind(client):
    path = "entries/torch24-cu124/edit"
    renamed = post(client, path, **filled(client, path, name="other", reason="r", what="create"))
    assert (renamed.status_code, "name of a document cannot change" in renamed.text) == (409, True)


def test_what_the_page_asks_by_itself_never_stores(client, stocked):
    before = stocked.gate.snapshot().revision
    for part in ("checked", "effects", ""):
        path = "entries/torch24-cu124/edit"
        answer = live(client, path, part, status="revoked", reason="r", what="create")
        assert answer.status_code == 200
        assert ("<h2>Effects" in answer.text) == (part == "effects")
    assert stocked.gate.snapshot().revision == before


def test_mistakes_stand_beside_their_field_and_name_their_line(client):
    answer = live(client, "new-entry", "checked", name="a b", targets="nowhere")
    assert answer.status_code == 200  # or the page could not show it
    for field, said in (
        ("name", "is not a name"),
        ("targets", "nowhere"),
        ("components", "missing"),
    ):
        beside = re.search(rf'id="wrong-{field}"[^>]*>([^<]*)<', answer.text)
        assert beside
        assert said in html.unescape(beside[1])
    assert re.search(r'id="wrong-yaml".*?line \d+: <code>metadata.name</code>', answer.text, re.S)


def test_a_waiver_from_a_denial_needs_a_reason_alone_and_says_what_else_it_lets_through(
    client, stocked, by
):
    spec = {**stocked.matrix.get("Entry", "torch24-cu124").document["spec"], "status": "revoked"}
    stocked.matrix.change(
        "Entry", "torch24-cu124", {"metadata": {"name": "torch24-cu124"}, "spec": spec}, by
    )
    for torch in ("2.4.0+cu124", "2.4.1+cu124"):
        asked = {**ASKED, "stack": {**ASKED["stack"], "torch": torch}}
        stocked.gate.decide(asked, asked_by="ci", source="rest")
    path = "new-waiver?rules=CG802&targets=prod-a100&components=torch+~%3D2.4.0"
    assert "This waiver allows 2 different stacks" in live(client, path, "effects").text
    typed = begin(client, path)
    assert typed["name"] == "torch-2.4.0-prod-a100"
    assert typed["owner"]
    made = post(client, "new-waiver", **typed | {"reason": "moves on Friday", "what": "create"})
    assert made.headers["Location"] == "/ui/waivers/torch-2.4.0-prod-a100"
    stored = stocked.matrix.get("Waiver", "torch-2.4.0-prod-a100").document["spec"]
    assert stored["reason"] == "moves on Friday"


def test_a_blessing_begins_with_its_status_and_names_the_runs_it_needs(pages, stocked, by):
    target = stocked.matrix.get("Target", "prod-a100").document
    policy = {**target["spec"]["policy"], "canary": {"require": True, "suites": ["smoke"]}}
    stocked.matrix.change(
        "Target", "prod-a100", {**target, "spec": {**target["spec"], "policy": policy}}, by
    )
    spec = stocked.matrix.get("Entry", "torch24-cu124").document["spec"]
    body = {"metadata": {"name": "tried"}, "spec": {**spec, "status": "candidate"}}
    stocked.matrix.create("Entry", body, by)
    client = pages("bless", "read", "operate")
    path = "entries/tried/edit?status=blessed"
    assert begin(client, path)["status"] == "blessed"
    shown = live(client, path, "effects").text
    assert "A policy requires these runs" in shown
    assert re.search(r'name="suite" value="smoke".*name="pool" value="a100-80"', shown)
    assert ">Run smoke and watch<" in shown
    plain = pages("bless", "read")
    assert ">Run smoke and watch<" not in live(plain, path, "effects").text
