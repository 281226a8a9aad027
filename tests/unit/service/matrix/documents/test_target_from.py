"""``compatgate target from`` and ``check --probe`` with other projects' files."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from compatgate.cli.main import main

FOLDER = Path(__file__).parents[4] / "fixtures" / "neighbours"


GB200 = {
    "nvidia.com/gpu.product": "NVIDIA-GB200",
    "nvidia.com/cuda.driver-version.full": "580.82.07",
}


@pytest.fixture
def nodes(tmp_path) -> str:
    """A node whose driver the operator also declares, with another version."""
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": GB200}}
    policy = {"kind": "ClusterPolicy", "apiVersion": "nvidia.com/v1"}
    policy["spec"] = {"driver": {"version": "580.95.05"}}
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": [node, policy]}))
    return str(path)


def test_a_document_is_printed_with_its_remarks_as_comments(nodes, capsys) -> None:
    assert main(["target", "from", nodes, "--name", "gb"]) == 0
    out = capsys.readouterr().out
    assert "# ClusterPolicy cluster-policy declares driver 580.95.05, n1 has 580.82.07\n" in out
    assert "  - name: gb200\n    gpu: GB200\n    driver: 580.95.05\n" in out


def test_what_is_printed_can_be_imported(nodes, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COMPATGATE_DATABASE", f"sqlite:///{tmp_path}/gate.db")
    main(["target", "from", nodes, "--name", "gb"])
    path = tmp_path / "target.yaml"
    path.write_text(capsys.readouterr().out)
    assert main(["matrix", "import", str(path)]) == 0
    assert "+ Target gb" in capsys.readouterr().out


def test_what_is_not_known_is_named_and_may_be_stated(capsys) -> None:
    policy = str(FOLDER / "clusterpolicy.yaml")
    assert main(["target", "from", policy, "--name", "next"]) == 3
    result = capsys.readouterr()
    assert "# pool gpu-cluster-policy: driver is not known: ClusterPolicy" in result.out
    assert "missing: gpu-cluster-policy: gpu, gpu-cluster-policy: driver" in result.err
    stated = ["--gpu", "L4", "--driver", "595.91.07", "--format", "json"]
    assert main(["target", "from", policy, "--name", "next", *stated]) == 0
    result = capsys.readouterr()
    assert '"driver": "595.91.07"' in result.out
    assert main(["target", "from", str(FOLDER / "nvidiadriver.yaml"), "--name", "n", *stated]) == 0
    assert "note: driver: the files say 570.148.08, 595.91.07 is stated" in capsys.readouterr().err


def test_standard_input_is_read(capsys, monkeypatch) -> None:
    data = (FOLDER / "nvidiadriver.yaml").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["target", "from", "-", "--name", "t", "--gpu", "L4"]) == 0
    assert "gpu: L4\n    driver: 570.148.08" in capsys.readouterr().out


def test_bad_files_are_errors_of_one_line(tmp_path, capsys) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\napiVersion: v1\n")
    assert main(["target", "from", str(path), "--name", "t"]) == 2
    assert "is Pod v1" in capsys.readouterr().err
    assert main(["target", "from", str(tmp_path / "none"), "--name", "t"]) == 2
    assert (
        main(["target", "from", str(FOLDER / "nvidiadriver.yaml"), "--name", "t", "--gpu", "Z9"])
        == 2
    )


def test_a_name_that_no_target_can_have_is_refused(capsys) -> None:
    assert main(["target", "from", "x.yaml", "--name", "a b\n- x"]) == 2
    assert "is not a target name" in capsys.readouterr().err
