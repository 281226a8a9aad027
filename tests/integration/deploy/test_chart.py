"""The Helm chart renders what Kubernetes takes and what the program says, and blocks no pod."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubectl_tools import helm, kubectl, rendered
from worker_objects import make_worker_objects

from compatgate import RELEASE
from compatgate.cli.main import parser_of
from compatgate.service.cluster.chart import asked_objects
from compatgate.service.cluster.kinds import load_kinds

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "compatgate"
CRDS = ROOT / "tests" / "fixtures" / "schemas" / "crds"
CRD_GROUPS = ("cert-manager.io", "monitoring.coreos.com")
VERSIONS = ("1.30", "1.37")
IMAGE = "registry.example/compatgate"
NAMED = ("--set", f"image.repository={IMAGE}")
POSTGRESQL = {"database": {"secret": {"name": "db"}}}
URL = {"database": {"url": "postgresql://gate:secret@db.example/gate"}}
HOSTS = '[[host]]\nname = "a100"\nexecutor = "kubernetes"\n'
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
WATCHED = {"audit": {"enabled": True}, "nodes": {"report": True, "driver": True}}
MONITORED = {
    "serviceMonitor": {"enabled": True},
    "rules": {"enabled": True},
    "dashboard": {"enabled": True},
    "labels": {"release": "prometheus"},
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "postgresql by url": {**URL, "replicas": 3, "gate": {"workers": 4, "publicUrl": "https://a.b"}},
    "postgresql by secret": {**POSTGRESQL, "podDisruptionBudget": {"maxUnavailable": "50%"}},
    "cert-manager": {**POSTGRESQL, "tls": {"mode": "certManager"}},
    "another issuer": {
        "tls": {"mode": "certManager",
                "certManager": {"issuerRef": {"name": "corp", "kind": "ClusterIssuer"}}}},
    "a given secret": {"tls": {"mode": "secret", "secret": {"name": "gate-tls", "ca": PEM}}},
    "fail closed": {**POSTGRESQL, "webhook": {"failurePolicy": "Fail"}},
    "opt in": {"webhook": {"namespaces": {"select": "opt-in", "excluded": ["dcgm"]}},
               "tls": {"mode": "certManager"}},
    "opt out": {"webhook": {"namespaces": {"select": "opt-out", "operators": []}},
                "tls": {"mode": "certManager"}},
    "no webhook": {"webhook": {"enabled": False}},
    "watched": {**WATCHED, "image": {"digest": "sha256:" + "0" * 64}},
    "monitored": {**POSTGRESQL, "monitoring": MONITORED,
                  "worker": {"enabled": True, "hosts": HOSTS}},
    "a claim of one's own": {"persistence": {"existingClaim": "gate"},
                             "networkPolicy": {"egress": [
                                 {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}},
    "everywhere": {
        **URL, **WATCHED, "monitoring": MONITORED, "worker": {"enabled": True, "hosts": HOSTS},
        "matrix": {"configMap": "matrix"}, "imagePullSecrets": ["registry"],
        "priorityClassName": "system-cluster-critical", "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}], "podLabels": {"c": "d"},
        "podAnnotations": {"e": "f"}, "service": {"port": 8443, "annotations": {"g": "h"}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                                       "whenUnsatisfiable": "DoNotSchedule"}],
        "gate": {"registries": ["registry.example"], "canaryImages": ["registry.example/*"],
                 "extraArgs": ["--rate=100/s"], "extraEnv": [{"name": "I", "value": "j"}],
                 "extraVolumes": [{"name": "k", "emptyDir": {}}],
                 "extraVolumeMounts": [{"name": "k", "mountPath": "/k"}]},
        "admission": {"exempt": ["legacy-*=old"], "unmatched": "deny", "policy": "deny"},
        "webhook": {"failurePolicy": "Fail"},
    },
}  # fmt: skip
"""Name of a case, and values."""
RELEASE_LABELS = {
    "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}  # fmt: skip


@lru_cache(maxsize=64)
def _rendered(values: str) -> str:
    words = ["template", "compatgate", CHART, "--namespace", "gate", "--kube-version", "1.33"]
    return helm(*words, *NAMED, "--values", "-", stdin=values).stdout


def objects(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What the chart renders, as release `compatgate` in the namespace `gate`."""
    return rendered(_rendered(json.dumps(values)))


def one(found: list[dict[str, Any]], kind: str, name: str = "compatgate") -> dict[str, Any]:
    (each,) = [o for o in found if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return each


def containers(found: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each container, with the name of its object and the spec of its pod."""
    specs = []
    for each in found:
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            specs.append((each["metadata"]["name"], spec["template"]["spec"]))
    return [
        (name, pod, container)
        for name, pod in specs
        for container in [*pod.get("initContainers", []), *pod["containers"]]
    ]


def errors(each: dict[str, Any]) -> list[str]:
    """What the schema of its project objects to in an object of a CRD."""
    schema = json.loads((CRDS / f"{each['kind']}.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    return [f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(each)]


@lru_cache(maxsize=256)
def check_by_schema(text: str) -> None:
    """Check an object once, however many cases render it."""
    each = json.loads(text)
    if each["apiVersion"].partition("/")[0] in CRD_GROUPS:
        assert errors(each) == []
        return
    for version in VERSIONS:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("name", CASES)
def test_official_schemas_accept_what_is_rendered(name: str) -> None:
    found = objects(CASES[name])
    for each in found:
        check_by_schema(json.dumps(each))
    identities = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in found]
    assert len(identities) == len(set(identities))


def test_the_schemas_of_crds_object_to_what_is_wrong() -> None:
    rules = one(objects(CASES["monitored"]), "PrometheusRule")
    assert errors({**rules, "spec": {"group": []}})
    assert errors({**rules, "spec": {"groups": [{"name": "a", "rules": [{"alert": "b"}]}]}})
    monitor = one(objects(CASES["monitored"]), "ServiceMonitor")
    assert errors({**monitor, "spec": {**monitor["spec"], "endpoints": [{"scheme": "gopher"}]}})
    certificate = one(objects(CASES["cert-manager"]), "Certificate", "compatgate-tls")
    assert errors({**certificate, "spec": {**certificate["spec"], "dnsName": "a"}})


def test_helm_lints_the_chart_and_its_version_is_the_programs(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(CASES["everywhere"]))
    helm("lint", "--strict", "--with-subcharts", CHART, *NAMED)
    helm("lint", "--strict", CHART, *NAMED, "--values", values)
    chart = yaml.load((CHART / "Chart.yaml").read_text(), yaml.CSafeLoader)
    assert chart["appVersion"] == RELEASE
    assert chart["version"] == RELEASE.replace(".dev", "-dev.")


def refusal(values: dict[str, Any]) -> str:
    done = helm(
        "template", "a", CHART, *NAMED, "--values", "-", stdin=json.dumps(values), check=False
    )
    assert done.returncode != 0
    return done.stderr


def test_the_schema_refuses_wrong_values_with_their_place() -> None:
    said = refusal({
        "replica": 2, "replicas": 0, "gate": {"anonymous": "admin"}, "tls": {"mode": "none"},
        "webhook": {"failurePolicy": "fail", "timeoutSeconds": 31, "asked": {"pods": [{}]},
                    "namespaces": {"excluded": ["A_b"]}},
        "database": {"url": "mysql://a"}, "image": {"digest": "sha256:1"},
    })  # fmt: skip
    for line in (
        "at '': additional properties 'replica' not allowed",
        "at '/replicas': minimum: got 0, want 1",
        "at '/gate/anonymous': 'admin' does not match pattern",
        "at '/tls/mode': value must be one of 'selfSigned', 'certManager', 'secret'",
        "at '/webhook/failurePolicy': value must be one of 'Fail', 'Ignore'",
        "at '/webhook/timeoutSeconds': maximum: got 31, want 30",
        "at '/webhook/asked'",
        "at '/webhook/namespaces/excluded/0': 'A_b' does not match pattern",
        "at '/database/url': 'mysql://a' does not match pattern",
        "at '/image/digest': 'sha256:1' does not match pattern",
    ):
        assert line in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "replicas: 2 need PostgreSQL; state database.url or"),
        ({"tls": {"mode": "secret"}}, "tls.secret.name: state the secret"),
        ({"tls": {"mode": "secret", "secret": {"name": "a"}}}, "tls.secret.ca: state the"),
        ({"worker": {"enabled": True}}, "worker.token.secret: state the secret with"),
        ({**POSTGRESQL, "worker": {"enabled": True}}, "worker.hosts: state the hosts.toml"),
        ({"database": {"url": "postgresql://a", "secret": {"name": "b"}}}, "not both"),
        ({"admission": {"kinds": {"configMap": "a"}}}, "webhook.asked: state the output of"),
    ],
)  # fmt: skip
def test_what_cannot_go_together_is_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


def test_without_an_image_it_says_where_one_comes_from() -> None:
    done = helm("template", "a", CHART, check=False)
    assert done.returncode
    assert "image.repository is required: make image, push it to your registry" in done.stderr


def plain(body: Any) -> Any:
    """An object without the labels of its release."""
    if isinstance(body, dict):
        return {key: plain(value) for key, value in body.items() if key not in RELEASE_LABELS}
    return [plain(item) for item in body] if isinstance(body, list) else body


@pytest.mark.parametrize(
    ("namespaces", "left_out", "label"),
    [
        ({}, {"gate", "gpu-operator"}, None),
        ({"select": "opt-in", "excluded": ["a"], "operators": ["nv"]}, {"gate", "nv", "a"},
         {"key": "compatgate.dev/admission", "operator": "In", "values": ["enabled"]}),
        ({"select": "opt-out", "operators": []}, {"gate"},
         {"key": "compatgate.dev/admission", "operator": "NotIn", "values": ["disabled"]}),
    ],
)  # fmt: skip
def test_the_webhook_asks_about_what_the_program_says_in_the_namespaces_that_are_chosen(
    namespaces: dict[str, Any], left_out: set[str], label: dict[str, Any] | None
) -> None:
    asked = asked_objects(load_kinds())
    values = {"webhook": {"namespaces": namespaces}, "admission": {"policy": "warn"}}
    found = objects(values)
    pods, workloads = one(found, "ValidatingWebhookConfiguration")["webhooks"]
    assert (pods["rules"], workloads["rules"]) == (asked["pods"], asked["workloads"])
    assert pods["matchConditions"] == asked["matchConditions"]
    assert "matchConditions" not in workloads
    assert pods["namespaceSelector"] == workloads["namespaceSelector"]
    names, *labels = pods["namespaceSelector"]["matchExpressions"]
    assert set(names["values"]) == {*(each["name"] for each in asked["excluded"]), *left_out}
    assert labels == ([label] if label else [])
    spec = one(found, "ValidatingAdmissionPolicy", "static.compatgate.dev")["spec"]
    assert spec["validations"] == asked["policy"]["validations"]
    assert spec["matchConstraints"]["namespaceSelector"] == pods["namespaceSelector"]
    binding = one(found, "ValidatingAdmissionPolicyBinding", "static.compatgate.dev")["spec"]
    assert binding["validationActions"] == ["Warn", "Audit"]


def test_the_reasons_of_excluded_namespaces_are_an_annotation_of_the_webhook() -> None:
    notes = one(objects({}), "ValidatingWebhookConfiguration")["metadata"]["annotations"]
    for each in asked_objects(load_kinds())["excluded"]:
        assert f"{each['name']}: {each['reason']}" in notes["compatgate.dev/excluded-namespaces"]


def test_accounts_may_do_what_their_command_does_and_no_more() -> None:
    found = objects({"audit": {"enabled": True}, "nodes": {"report": True}})
    (nodes,) = one(found, "ClusterRole", "compatgate-nodes")["rules"]
    assert (nodes["resources"], nodes["verbs"]) == (["nodes"], ["get", "list"])
    read, claims = one(found, "ClusterRole", "compatgate-audit")["rules"]
    assert (read["resources"], read["verbs"]) == (["nodes", "pods"], ["list"])
    assert (claims["apiGroups"], claims["verbs"]) == (["resource.k8s.io"], ["get"])
    assert one(found, "ServiceAccount")["automountServiceAccountToken"] is False


def test_each_gpu_node_reports_its_driver() -> None:
    daemon = one(objects(WATCHED), "DaemonSet", "compatgate-nodes-driver")
    pod = daemon["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in container["env"]
    assert not any("nvidia" in name for name in container["resources"]["limits"])


def test_the_worker_has_the_rights_and_network_policies_that_the_program_names() -> None:
    found = objects({**POSTGRESQL, "worker": {"enabled": True, "hosts": HOSTS}})
    for each in make_worker_objects("compatgate-canary", "gate"):
        here = one(found, each["kind"], each["metadata"]["name"])
        assert plain(here) == plain(each), f"{each['kind']} {each['metadata']['name']}"


def test_files_that_come_from_the_program_are_current() -> None:
    spec = spec_from_file_location("chart_files", ROOT / "scripts" / "chart_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.stale() == []


def test_alerts_and_dashboard_are_the_shipped_ones() -> None:
    found = objects(CASES["monitored"])
    shipped = ROOT / "deploy" / "monitoring"
    alerts = yaml.load((shipped / "alerts.yaml").read_text(), yaml.CSafeLoader)
    assert one(found, "PrometheusRule")["spec"] == alerts
    documented = {**MONITORED, "docs": "https://docs.example/compatgate/"}
    (group,) = one(objects({"monitoring": documented}), "PrometheusRule")["spec"]["groups"]
    links = [rule["annotations"]["runbook_url"] for rule in group["rules"]]
    assert links[0] == "https://docs.example/compatgate/how-to/runbook/#compatgategatedown"
    dashboard = one(found, "ConfigMap", "compatgate-dashboard")["data"]["compatgate.json"]
    assert dashboard == (shipped / "dashboard.json").read_text()
    (endpoint,) = one(found, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "compatgate"}]


@pytest.mark.parametrize("name", CASES)
def test_no_container_may_more_than_it_needs(name: str) -> None:
    for owner, pod, container in containers(objects(CASES[name])):
        assert pod["securityContext"]["runAsNonRoot"] is True, owner
        assert pod["securityContext"]["runAsUser"] == 10001
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        known = {volume["name"] for volume in pod.get("volumes", [])}
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= known


def test_the_program_understands_what_containers_call() -> None:
    called = set()
    for owner, _, container in containers(objects(CASES["everywhere"])):
        name, *rest = container["args"]
        parsed = vars(parser_of(name).parse_args(rest))
        called.add(f"{owner} {name}")
        if name == "serve":
            assert (parsed["unmatched"], parsed["exempt"]) == ("deny", ["legacy-*=old"])
            assert parsed["port"] == container["ports"][0]["containerPort"]
    assert called == {
        "compatgate serve", "compatgate db", "compatgate-webhook k8s", "compatgate-audit k8s",
        "compatgate-worker worker", "compatgate-nodes-report k8s",
        "compatgate-nodes-driver nodes",
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_is_left_behind_blocks_a_pod(name: str) -> None:
    found = objects(CASES[name])
    for each in found:
        notes = each["metadata"].get("annotations") or {}
        assert "helm.sh/resource-policy" not in notes
        assert not each["metadata"].get("finalizers")
        if "helm.sh/hook" in notes:  # Helm deletes no hooks with the release
            assert each["kind"] == "Job"
            assert "hook-succeeded" in notes["helm.sh/hook-delete-policy"]
            assert each["spec"]["ttlSecondsAfterFinished"] > 0
    webhooks = [o for o in found if o["kind"].endswith("WebhookConfiguration")]
    assert len(webhooks) == (name != "no webhook")
    builtin = [o for o in found if "helm.sh/hook" not in (o["metadata"].get("annotations") or {})
               and o["apiVersion"].partition("/")[0] not in CRD_GROUPS
               and not o["kind"].startswith("ValidatingAdmissionPolicy")]  # fmt: skip
    assert webhooks in ([], builtin[-1:]), "applied last, as it is deleted first"


def test_pods_are_let_in_until_the_gate_is_ready() -> None:
    for policy in ("Ignore", "Fail"):
        found = objects({"webhook": {"failurePolicy": policy}})
        configuration = one(found, "ValidatingWebhookConfiguration")
        assert [hook["failurePolicy"] for hook in configuration["webhooks"]] == ["Ignore"] * 2
        jobs = [o for o in found if o["kind"] == "Job"]
        assert len(jobs) == (policy == "Fail")
    (container,) = jobs[0]["spec"]["template"]["spec"]["containers"]
    assert "--failure-policy=Fail" in container["args"]
    assert "post-install" in jobs[0]["metadata"]["annotations"]["helm.sh/hook"]
    (rule,) = one(found, "ClusterRole", "compatgate-webhook")["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["compatgate"], ["get", "patch"])


def test_a_release_of_another_name_has_objects_of_its_own() -> None:
    words = ["template", "blue", CHART, "--namespace", "b", "--set", "audit.enabled=true"]
    found = rendered(helm(*words, *NAMED, "--set", "webhook.failurePolicy=Fail").stdout)
    names = {each["metadata"]["name"] for each in found}
    assert all(name.startswith("blue-compatgate") for name in names), names
    hooks = one(found, "ValidatingWebhookConfiguration", "blue-compatgate")["webhooks"]
    assert {hook["clientConfig"]["service"]["namespace"] for hook in hooks} == {"b"}


def test_a_worker_with_a_token_sees_no_database() -> None:
    found = objects({"worker": {"enabled": True, "hosts": HOSTS, "token": {"secret": "a100"}}})
    pod = one(found, "Deployment", "compatgate-worker")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    names = {variable["name"] for variable in container["env"]}
    assert "COMPATGATE_TOKEN" in names
    assert "COMPATGATE_DATABASE" not in names
    assert any(one.startswith("--gate=https://compatgate.") for one in container["args"])


def test_the_worker_may_create_jobs_in_its_namespace_and_read_no_secret() -> None:
    found = objects(CASES["monitored"])
    role = one(found, "Role", "compatgate-worker")
    assert role["metadata"]["namespace"] == "compatgate-canary"
    granted = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert "jobs" in granted
    assert "secrets" not in granted
    pods = one(found, "Deployment", "compatgate-worker")["spec"]["template"]["metadata"]["labels"]
    selector = one(found, "Service")["spec"]["selector"]
    assert not selector.items() <= pods.items(), "the gate's Service leads to the gate alone"


def test_kustomize_builds_the_example_overlay(tmp_path: Path) -> None:
    overlay = ROOT / "deploy" / "kustomize"
    for file in overlay.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    words = ["template", "compatgate", CHART, "--namespace", "compatgate"]
    made = helm(*words, "--values", overlay / "values.yaml").stdout
    (tmp_path / "compatgate.yaml").write_text(made)
    found = rendered(kubectl("kustomize", tmp_path).stdout)
    assert len(found) == len(rendered(made))
    for each in found:
        assert each["metadata"]["labels"]["team"] == "platform"
        check_by_schema(json.dumps(each))
    assert one(found, "Deployment")["spec"]["template"]["spec"]["dnsConfig"]
    hooks = one(found, "ValidatingWebhookConfiguration")["webhooks"]
    last = hooks[0]["namespaceSelector"]["matchExpressions"][-1]
    assert last["values"] == ["dcgm"]


def test_every_value_is_documented_and_described() -> None:
    """The schema knows every default, and the README every value at the top."""
    values = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(have: Any, known: dict[str, Any], place: str) -> None:
        if isinstance(have, dict) and "properties" in known:
            optional = {"global"} if not place else set()
            assert set(known["properties"]) - optional >= set(have), place
            for key, value in have.items():
                compare(value, known["properties"][key], f"{place}.{key}")

    compare(values, schema, "")
    readme = (CHART / "README.md").read_text()
    assert [key for key in values if f"`{key}" not in readme] == []
