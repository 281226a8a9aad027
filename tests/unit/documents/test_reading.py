"""Reading files: typed documents, or every mistake with its file, line and path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from compatgate.core.facts.nvidia import Gpus
from compatgate.documents import validation
from compatgate.documents.sources import MAX_EXPLAINED, MAX_PROBLEMS, DocumentProblem, Source
from compatgate.documents.specs import Document, EntryDoc, TargetDoc, WaiverDoc, to_body
from compatgate.documents.text import RawDocument
from compatgate.documents.validation import read_body, read_documents
from compatgate.errors import ManyProblems

Read = Callable[..., list[Document]]
Problems = Callable[..., list[DocumentProblem]]
Entry = Callable[..., str]

DESIGN = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100, labels: {tier: prod}}
spec:
  pools:
    - {name: a100-80, gpu: A100-SXM4-80GB, driver: 535.183.01, os: linux, count: 512}
  match: {namespaces: ["ml-*"], nodeLabels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
  policy:
    mode: enforce
    requireEntry: true
    canary: {require: true, maxAge: 30d, suites: [smoke, dl-core]}
    onUnknown: fail
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: torch24-cu124}
spec:
  targets: [prod-a100]
  components: {driver: ">=535.104.05,<536", cuda: "12.4.*", cudnn: "9.1.*", torch: "~=2.4.0"}
  status: blessed
  reason: suite dl-core passed on staging
---
apiVersion: compatgate.dev/v1
kind: Waiver
metadata: {name: legacy-ocr}
spec:
  rules: [CG803]
  targets: [prod-a100]
  match: {image: "registry.example/ocr/*"}
  owner: team-ocr
  reason: "..."
  expires: 2027-01-31
"""


def test_the_three_kinds_are_read_into_typed_documents(read: Read) -> None:
    target, entry, waiver = read(DESIGN)
    assert isinstance(target, TargetDoc)
    assert target.spec.policy.canary.suites == ("smoke", "dl-core")
    assert target.spec.match.node_labels == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert isinstance(entry, EntryDoc)
    assert entry.spec.components["torch"] == "~=2.4.0"
    assert isinstance(waiver, WaiverDoc)
    assert waiver.spec.expires == "2027-01-31"


def test_what_is_left_out_has_the_documented_defaults(read: Read) -> None:
    (target,) = read(
        """
        apiVersion: compatgate.dev/v1
        kind: Target
        metadata: {name: dev}
        spec: {pools: [{name: l4, gpu: L4, driver: "550.54.15"}]}
        """
    )
    assert isinstance(target, TargetDoc)
    pool, policy = target.spec.pools[0], target.spec.policy
    assert (pool.os, pool.cpu, pool.count) == ("linux", "x86_64", 1)
    assert (policy.mode, policy.require_entry, policy.on_unknown) == ("enforce", False, "fail")
    assert (policy.canary.require, policy.canary.max_age) == (False, "30d")


def test_a_pool_that_names_no_processor_has_its_gpus(read: Read) -> None:
    (target,) = read(
        """
        apiVersion: compatgate.dev/v1
        kind: Target
        metadata: {name: grace}
        spec:
          pools:
            - {name: gh, gpu: GH200, driver: "550.54.15"}
            - {name: said, gpu: GH200, driver: "550.54.15", cpu: x86_64}
            - {name: l4, gpu: L4, driver: "550.54.15"}
        """
    )
    assert isinstance(target, TargetDoc)
    assert [pool.cpu for pool in target.spec.pools] == ["aarch64", "x86_64", "x86_64"]


def test_five_mistakes_in_one_file_are_five_problems_with_line_and_path(problems: Problems) -> None:
    found = problems(
        """\
        apiVersion: compatgate.dev/v1
        kind: Entry
        metadata: {name: torch24}
        spec:
          targets: [prod-a1000]
          components:
            cuda: 12.10
            cudn: "9.1.*"
            torch: "~~2.4"
          status: bless
        """
    )
    assert [(p.line, p.field) for p in found] == [
        (5, "spec.targets[0]"),
        (7, "spec.components.cuda"),
        (8, "spec.components.cudn"),
        (9, "spec.components.torch"),
        (10, "spec.status"),
    ]
    assert all(p.file == "matrix.yaml" and p.document == "Entry torch24" for p in found)
    assert all(p.hint for p in found)


def test_problems_of_several_files_come_in_the_order_of_the_files(
    problems: Problems, entry: Entry
) -> None:
    found = problems({"b.yaml": entry(status="x"), "a.yaml": entry(status="y", targets="[]")})
    assert [p.file for p in found] == ["b.yaml", "a.yaml", "a.yaml", "a.yaml"]
    assert "defined twice; first at b.yaml:1" in found[1].problem


@pytest.mark.parametrize(
    ("written", "reading"),
    [
        ("12.10", "the number 12.1"),
        ("12040", "the number 12040"),
        ("no", "false"),
        ("on", "true"),
        ("1e3", None),
    ],
)
def test_what_yaml_would_misread_is_to_be_quoted(
    problems: Problems, entry: Entry, written: str, reading: str | None
) -> None:
    found = problems(entry(components=f"{{cuda: {written}}}"))
    assert [p.field for p in found] == ["spec.components.cuda"]
    if reading:
        assert found[0].problem == f"{written} must be in quotes; YAML reads it as {reading}"
        assert found[0].hint == f'write "{written}"'


def test_quotes_are_not_advised_where_they_would_not_make_it_right(problems: Problems) -> None:
    (found,) = problems(DESIGN.replace("maxAge: 30d", "maxAge: 30"))
    assert found.problem == "'30' is not a duration"
    assert "like 30d" in found.hint


def test_advice_about_a_driver_is_a_version_that_is_then_accepted(
    problems: Problems, read: Read
) -> None:
    branch = DESIGN.replace("driver: 535.183.01", "driver: 580", 1)
    (found,) = problems(branch)
    assert found.field == "spec.pools[0].driver"
    assert "a branch is not a driver version" in found.hint
    advised = found.hint.rpartition("like ")[2].partition(" ")[0]
    assert read(branch.replace("driver: 580", f"driver: {advised}", 1))
    (found,) = problems(DESIGN.replace("driver: 535.183.01", "driver: 527.41", 1))
    assert found.hint == 'write "527.41"'


def test_a_constraint_that_nothing_can_meet_is_a_mistake(problems: Problems, entry: Entry) -> None:
    (found,) = problems(entry(components='{driver: ">=536,<535"}'))
    assert found.field == "spec.components.driver"
    assert found.problem == "no version of driver is >=536,<535"


def test_a_name_that_yaml_reads_as_false_is_to_be_quoted(problems: Problems) -> None:
    found = problems(DESIGN.replace("{name: legacy-ocr}", "{name: no}"))
    assert found[0].field == "metadata.name"
    assert "must be in quotes; YAML reads it as false" in found[0].problem


def test_a_date_may_be_quoted_or_not(read: Read) -> None:
    quoted = DESIGN.replace("2027-01-31", '"2027-01-31"')
    assert read(DESIGN) == read(quoted)


@pytest.mark.parametrize("day", ["2027-02-30", "31.01.2027", "2027-1-31", "soon", '"2027-01-31 "'])
def test_an_end_that_is_not_a_date_is_refused(problems: Problems, day: str) -> None:
    found = problems(DESIGN.replace("2027-01-31", day))
    assert {p.field for p in found} == {"spec.expires"}


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("CG803", "CG999", "spec.rules[0]", "rule CG999 does not exist"),
        ("CG803", "CG821", "spec.rules[0]", "cannot be waived"),
        ("CG803", "CG901", "spec.rules[0]", "cannot be waived"),
        ("CG803", "cg803", "spec.rules[0]", "not a rule's id"),
        ("A100-SXM4-80GB, driver", "A1000-XL, driver", "spec.pools[0].gpu", "not a GPU"),
        ("535.183.01", "r535", "spec.pools[0].driver", "not a version of driver"),
        ("30d", "1 month", "spec.policy.canary.maxAge", "not a duration"),
        ("30d", "999999999w", "spec.policy.canary.maxAge", "longer than 100 years"),
        ("mode: enforce", "mode: strict", "spec.policy.mode", "not known"),
        ("count: 512", "count: -1", "spec.pools[0].count", "at least 0"),
        ("count: 512", "count: 1.5", "spec.pools[0].count", "whole number"),
        ("count: 512", "count: true", "spec.pools[0].count", "whole number"),
        ("[prod-a100]\n  match", "prod-a100\n  match", "spec.targets", "must be a list"),
        ("owner: team-ocr", "owner:", "spec.owner", "is empty"),
        ("  owner: team-ocr\n", "", "spec", "owner is missing"),
        ("owner: team-ocr", "ownr: team-ocr", "spec.ownr", "unknown key"),
        ("compatgate.dev/v1\nkind: Waiver", "v2\nkind: Waiver", "apiVersion", "not supported"),
        ("kind: Waiver", "kind: Wavier", "kind", "not known"),
        ("cudnn:", "libcudnn9:", None, None),
        ("cudnn:", "nvidia-cudnn-cu12:", "spec.components.nvidia-cudnn-cu12", "one CUDA build"),
        ("tier: prod", "tier: no", "metadata.labels.tier", "in quotes"),
        ("name: prod-a100,", "name: 'a b',", "metadata.name", "is not a name"),
    ],
)
def test_a_mistake_is_named_by_its_path(
    read: Read, problems: Problems, old: str, new: str, field: str | None, says: str | None
) -> None:
    text = DESIGN.replace(old, new)
    assert text != DESIGN
    if field is None or says is None:
        read(text)
        return
    found = [p for p in problems(text) if p.field == field]
    assert len(found) == 1
    assert says in found[0].problem
    lines = zip(text.split("\n"), DESIGN.split("\n"), strict=False)
    changed = next(index for index, (new, old) in enumerate(lines, 1) if new != old)
    assert found[0].line == changed or field == "spec"


def test_strictness_where_no_entry_is_asked_for_is_refused(read: Read, problems: Problems) -> None:
    strict = DESIGN.replace("onUnknown: fail", "entries: strict")
    (target, *_) = read(strict)
    assert isinstance(target, TargetDoc)
    assert target.spec.policy.entries == "strict"
    (found,) = problems(strict.replace("requireEntry: true", "requireEntry: false"))
    assert (found.field, found.value) == ("spec.policy.entries", "strict")
    assert "requireEntry: true" in found.hint


def test_one_component_under_two_names_is_refused(problems: Problems, entry: Entry) -> None:
    (found,) = problems(entry(components='{torch: "2.4.*", pytorch: "2.5.*"}'))
    assert found.problem == "pytorch and torch are both torch"


def test_component_names_become_canonical(read: Read, entry: Entry) -> None:
    (found,) = read(entry(components='{pytorch: "2.4.*", libcudnn9: "9.1.*"}'))
    assert isinstance(found, EntryDoc)
    assert list(found.spec.components) == ["torch", "cudnn"]


def test_a_waiver_cannot_match_on_the_driver(problems: Problems) -> None:
    found = problems(
        DESIGN.replace("match: {image:", "match: {components: {driver: '>=535'}, image:")
    )
    assert [p.field for p in found] == ["spec.match.components.driver"]


@pytest.mark.parametrize("kind", ["targets", "gpus"])
def test_a_list_that_repeats_itself_is_refused(problems: Problems, entry: Entry, kind: str) -> None:
    value = "prod-a100" if kind == "targets" else "L4"
    (found,) = problems(entry(**{kind: f"[{value}, {value}]"}))
    assert (found.field, found.problem) == (f"spec.{kind}[1]", f"{value} is stated twice")


def test_an_entry_is_for_products_not_for_capabilities(problems: Problems, entry: Entry) -> None:
    (found,) = problems(entry(gpus="[L4, sm_90]"))
    assert found.field == "spec.gpus[1]"
    assert "compute capability" in found.problem


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("L4/mig-*", "no MIG on L4"),
        ("A100/mig-1g.10gb/mig-*", "a MIG profile and every slice"),
        ("A100/mig-1g.*", "names MIG without its profile"),
        ("sm_90/mig-*", "compute capability"),
        ("*", "which product it is"),
    ],
)
def test_an_entry_names_slices_that_there_are(
    problems: Problems, entry: Entry, name: str, said: str
) -> None:
    (found,) = problems(entry(gpus=f'["{name}"]'))
    assert found.field == "spec.gpus[0]"
    assert said in found.problem


def test_pools_of_one_target_have_different_names(problems: Problems) -> None:
    pool = "    - {name: a100-80, gpu: A100-SXM4-80GB, driver: 535.183.01"
    (found,) = problems(DESIGN.replace(pool, f"{pool}}}\n{pool}"))
    assert found.field == "spec.pools[1].name"


def test_an_entry_may_name_targets_of_any_file_and_of_the_store(read: Read, entry: Entry) -> None:
    assert read(entry(targets="[stored]"), known=("stored",))
    assert read({"a": entry(), "b": DESIGN.split("---")[0]}, known=("other",))
    assert read(entry(targets="['*']"), known=("other",))


def test_a_target_that_exists_nowhere_is_named_with_the_near_one(
    problems: Problems, entry: Entry
) -> None:
    (found,) = problems(entry(targets="[prod-a10]"))
    assert found.problem == "target 'prod-a10' does not exist, neither here nor in the database"
    assert found.hint == "did you mean prod-a100?"


def test_schema_and_meaning_are_both_checked_in_a_document_that_is_wrong_in_both(
    problems: Problems, entry: Entry
) -> None:
    found = problems(entry(status="", components="{cuda: '=>12'}", extra="1"))
    assert {p.field for p in found} == {"spec", "spec.components.cuda", "spec.extra"}


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "---\n---\n", "[]"])
def test_a_file_without_documents_is_a_mistake_that_says_so(problems: Problems, text: str) -> None:
    assert [p.problem for p in problems(text)] == ["the text has no document"]


def test_nothing_between_two_documents_is_no_document(read: Read, entry: Entry) -> None:
    assert len(read(f"---\n---\n{entry()}---\n# nothing\n---\n")) == 1


@pytest.mark.parametrize("text", ["just text", "42", "- 1", "[[]]", "null", "~", "[null]", "-"])
def test_a_document_must_be_a_mapping(problems: Problems, text: str) -> None:
    assert [p.problem for p in problems(text)] == ["a document must be a mapping"]


def test_a_body_over_rest_needs_no_kind_and_names_field_paths(gpus: Gpus) -> None:
    body = {
        "metadata": {"name": "x"},
        "spec": {"targets": ["prod-a100"], "components": {"cuda": 12.4}, "status": "blessed"},
    }
    with pytest.raises(ManyProblems) as caught:
        read_body(body, "Entry", gpus, ["prod-a100"])
    (found,) = caught.value.problems
    assert found.field == "spec.components.cuda"
    assert found.hint == 'write it in quotes, like "12.4"'
    body["spec"]["components"]["cuda"] = "12.4.*"  # type: ignore[index]
    document = read_body(body, "Entry", gpus, ["prod-a100"])
    assert to_body(document)["kind"] == "Entry"


def test_a_body_must_agree_with_the_request_on_kind_and_name(gpus: Gpus) -> None:
    body = {
        "kind": "Waiver",
        "metadata": {"name": "y"},
        "spec": {"targets": ["*"], "components": {"cuda": "12.*"}, "status": "blessed"},
    }
    with pytest.raises(ManyProblems) as caught:
        read_body(body, "Entry", gpus, name="x")
    assert {p.field for p in caught.value.problems} == {"kind", "metadata.name"}


def test_a_body_may_leave_its_name_to_the_request(gpus: Gpus) -> None:
    spec = {"targets": ["*"], "components": {"cuda": "12.*"}, "status": "blessed"}
    assert read_body({"spec": spec}, "Entry", gpus, name="x").metadata.name == "x"


@pytest.mark.parametrize("body", [None, [], "text", 1, {"spec": "\ud800"}, {"spec": {1: 2}}])
def test_any_json_value_as_a_body_is_answered_with_problems(gpus: Gpus, body: object) -> None:
    with pytest.raises(ManyProblems):
        read_body(body, "Entry", gpus)


def test_a_hundred_broken_documents_are_a_hundred_problems(gpus: Gpus, entry: Entry) -> None:
    text = "---\n".join(
        entry(status="wrong").replace("torch24", f"e{index}") for index in range(100)
    )
    with pytest.raises(ManyProblems) as caught:
        read_documents([Source("many.yaml", text)], gpus, ["prod-a100"])
    assert len(caught.value.problems) == 100
    assert str(caught.value).startswith("100 problems; nothing was changed\n  many.yaml:7: spec")


def test_of_a_large_wrong_document_the_first_mistake_is_told(problems: Problems) -> None:
    labels = dict.fromkeys((f"n{n}" for n in range(MAX_EXPLAINED)), None)
    (found,) = problems(_target("t", labels))
    assert "metadata.labels" in found.problem


def test_documents_share_the_number_of_values_that_are_explained(
    problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained = []
    explain = validation.explain_mistakes

    def record(raw: RawDocument, kind: str) -> Iterator[DocumentProblem]:
        explained.append(raw)
        return explain(raw, kind)

    monkeypatch.setattr(validation, "explain_mistakes", record)
    labels = {**dict.fromkeys((f"n{n}" for n in range(3_000)), "1"), "last": None}
    found = problems("\n---\n".join(_target(f"t{n}", labels) for n in range(8)))
    assert len(found) == 8
    assert len(explained) == MAX_EXPLAINED // 3_000


def _target(name: str, labels: dict[str, str | None]) -> str:
    return json.dumps(
        {
            "apiVersion": "compatgate.dev/v1",
            "kind": "Target",
            "metadata": {"name": name, "labels": labels},
            "spec": {"pools": [{"name": "a", "gpu": "L4", "driver": "535.183.01"}]},
        }
    )


def test_mistakes_beyond_the_most_that_are_told_are_not_searched(problems: Problems) -> None:
    pools = [{"name": f"p{n}", "gpu": f"A100-{n}", "driver": "535.1"} for n in range(1_000)]
    document = {**json.loads(_target("t", {})), "spec": {"pools": pools}}
    assert len(problems(json.dumps(document))) == MAX_PROBLEMS
