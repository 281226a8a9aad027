"""``compatgate k8s manifests`` prints what ``kubectl apply`` takes."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml

from compatgate.cli.main import main


def test_the_manifests_are_objects_of_the_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "manifests", "--namespace", "gpu-staging"]) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [each["kind"] for each in found] == [
        "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "NetworkPolicy",
    ]  # fmt: skip
    for each in found:
        kubernetes_validate.validate(each, "1.34", strict=True)
        assert each["metadata"]["namespace"] == "gpu-staging"


@pytest.mark.parametrize("name", ["", "A", "a_b", "a" * 64, "a\n"])
def test_what_is_no_namespace_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "manifests", "--namespace", name]) == 2
    assert "--namespace" in capsys.readouterr().err
