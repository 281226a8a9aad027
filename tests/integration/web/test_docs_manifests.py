"""docs/how-to/manifests.md, and the checks before a sync of Argo CD and Flux.

The real ``helm`` and ``kubectl`` render; the rendered jobs run with this program, on the files that
their config maps hold.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from catalogue import own_cache
from image_blobs import distribution, layer_of
from kubectl_tools import helm, kubectl, rendered

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "manifests.md"
ARGO, FLUX = ROOT / "deploy" / "argo-cd", ROOT / "deploy" / "flux"
KUBERNETES = "1.37"
HOST = "http://127.0.0.1:8080"
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: trainer
spec:
  selector: {matchLabels: {app: trainer}}
  template:
    metadata:
      labels: {app: trainer}
      annotations:
        compatgate.dev/stack: STACK
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
      containers:
        - name: app
          image: registry.example/trainer:1
          resources: {limits: {nvidia.com/gpu: "1"}}
"""
GOOD, BAD = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124", "cuda=12.4,arch=sm_90"
VALUES: dict[str, Any] = {
    "image": "registry.example/compatgate:1",
    "tokenSecret": "compatgate-token",
    "templates": ["deployment.yaml"],
    "arguments": ["--format=github"],
}


def compatgate(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "compatgate", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        check=False,
    )


def test_the_example_prints_what_the_page_says(shared: Any, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    manifest = re.search(r"<<'END'\n(.*?)^END$", block, re.DOTALL | re.MULTILINE)
    command = re.search(r"^\$ compatgate (.*)$", block, re.MULTILINE)
    assert manifest
    assert command
    (tmp_path / "train.yaml").write_text(manifest[1])
    asked = command[1].replace(HOST, f"http://127.0.0.1:{shared.port}").split()
    done = compatgate(tmp_path, *asked)
    assert done.returncode == 1
    said = f"{done.stdout}{done.stderr}".strip()
    pattern = ".*".join(re.escape(part) for part in block[command.end() + 1 :].split("..."))
    assert re.fullmatch(pattern.strip("\\\n"), said, re.DOTALL), said


def run_job(folder: Path, objects: list[dict[str, Any]], shared: Any) -> Any:
    """Run a rendered job on the files of its config map, as kubelet mounts them."""
    for one in objects:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    (job,) = (one for one in objects if one["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    named = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
    (config,) = (
        one for one in objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == named["manifests"]
    )  # fmt: skip
    mounted = folder / "manifests"
    shutil.rmtree(mounted, ignore_errors=True)
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..data").symlink_to("..2026")
    for name, text in config["data"].items():
        (mounted / "..2026" / name).write_text(text)
        (mounted / name).symlink_to(f"..data/{name}")
    (container,) = pod["containers"]
    address = f"--server=http://127.0.0.1:{shared.port}"
    arguments = [
        str(mounted) if word == "/manifests" else address if word.startswith("--server=") else word
        for word in container["args"]
    ]
    assert "--server=https://compatgate.compatgate.svc" in container["args"]
    (exits,) = job["spec"]["podFailurePolicy"]["rules"]
    done = compatgate(folder, *arguments, COMPATGATE_TOKEN=shared.token)
    final = done.returncode in exits["onExitCodes"]["values"]
    return done, final


@pytest.mark.parametrize(("stack", "status"), [(GOOD, 0), (BAD, 1)])
def test_argo_cd_asks_about_what_the_chart_renders(
    shared: Any, tmp_path: Path, stack: str, status: int
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: trainer\nversion: 0.1.0\n")
    text = DEPLOYMENT.replace("STACK", "{{ .Values.stack }}")
    (chart / "templates" / "deployment.yaml").write_text(text)
    shutil.copy(ARGO / "compatgate-check.yaml", chart / "templates")
    values = {
        "stack": stack,
        "compatgate": {**VALUES, "server": "https://compatgate.compatgate.svc"},
    }
    (chart / "values.yaml").write_text(yaml.safe_dump(values))
    helm("lint", chart)
    objects = rendered(helm("template", "trainer", chart, "--namespace", "ml-train").stdout)
    hooks = [one for one in objects if one["kind"] != "Deployment"]
    for one in hooks:
        annotations = one["metadata"]["annotations"]
        assert annotations["argocd.argoproj.io/hook"] == "PreSync"
    waves = {one["kind"]: hook_wave(one) for one in hooks}
    assert waves["ConfigMap"] < waves["Job"]
    done, final = run_job(tmp_path, hooks, shared)
    assert (done.returncode, final) == (status, bool(status)), done.stdout + done.stderr
    if status:
        assert re.search(r"file=manifests/deployment\.yaml,line=\d+,title=CG", done.stdout)


def hook_wave(one: dict[str, Any]) -> int:
    return int(one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])


@pytest.mark.parametrize(("stack", "status"), [(GOOD, 0), (BAD, 1)])
def test_flux_asks_before_it_applies(shared: Any, tmp_path: Path, stack: str, status: int) -> None:
    """kustomize-controller builds with the whole source as root; kubectl is told to."""
    shutil.copytree(FLUX / "check", tmp_path / "deploy" / "check")
    (tmp_path / "deploy" / "app").mkdir()
    names = []
    for text in (DEPLOYMENT, DEPLOYMENT.replace("trainer:1", "trainer:2")):
        app = tmp_path / "deploy" / "app" / "deployment.yaml"
        app.write_text(text.replace("STACK", stack))
        built = kubectl(
            "kustomize", tmp_path / "deploy" / "check", "--load-restrictor=LoadRestrictionsNone"
        )
        objects = rendered(built.stdout)
        names += [one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"]
    assert names[0] != names[1], "changed manifests make another job"
    done, final = run_job(tmp_path, objects, shared)
    assert (done.returncode, final) == (status, bool(status)), done.stdout + done.stderr


def test_fluxs_application_waits_for_the_check_of_its_own_source() -> None:
    check, app = yaml.load_all((FLUX / "sync.yaml").read_text(), yaml.CSafeLoader)
    assert app["spec"]["dependsOn"] == [{"name": check["metadata"]["name"]}]
    assert app["spec"]["sourceRef"] == check["spec"]["sourceRef"]
    assert (check["spec"]["wait"], check["spec"]["force"]) == (True, True)
    job = yaml.load((FLUX / "check" / "job.yaml").read_text(), yaml.CSafeLoader)
    seconds = int(check["spec"]["timeout"].removesuffix("m")) * 60
    assert seconds > job["spec"]["activeDeadlineSeconds"]


def test_what_helm_and_kustomize_render_is_checked_in_a_pipe(shared: Any, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "deployment.yaml").write_text(DEPLOYMENT.replace("STACK", BAD))
    (folder / "kustomization.yaml").write_text(
        "resources: [deployment.yaml]\nnamespace: ml-train\nnamePrefix: eu-\n"
    )
    built = kubectl("kustomize", folder).stdout
    server = f"http://127.0.0.1:{shared.port}"
    done = subprocess.run(
        [sys.executable, "-m", "compatgate", "k8s", "check", "-", "--server", server],
        input=built, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Deployment ml-train/eu-trainer, container app" in done.stdout
    refused = compatgate(tmp_path, "k8s", "check", "app", "--server", server)
    assert refused.returncode == 2
    assert "kubectl kustomize" in refused.stderr


@pytest.mark.parametrize(
    ("options", "status"),
    [([], 3)]
    + [(["--unmatched", name], int(name == "deny")) for name in ("allow", "warn", "deny")],
)
def test_a_gate_that_lets_pods_without_a_target_pass_has_not_checked_them(
    shared: Any, tmp_path: Path, options: list[str], status: int
) -> None:
    text = DEPLOYMENT.replace("STACK", GOOD).replace("A100-SXM4-80GB", "T4")
    (tmp_path / "app.yaml").write_text(text)
    server = ["--server", f"http://127.0.0.1:{shared.port}"]
    done = compatgate(tmp_path, "k8s", "check", "app.yaml", *server, *options)
    assert done.returncode == status, done.stdout + done.stderr
    assert "matches no target, so nothing was checked" in " ".join(done.stdout.split())


def test_images_are_read_where_they_may_be(fake: Any, tmp_path: Path) -> None:
    """Without a server: an image of an allowed registry counts; any other leaves the stack open, so
    that no entry of the matrix covers it.
    """
    packages = {
        **distribution("torch", "2.4.1+cu124"),
        **distribution("nvidia-cudnn-cu12", "9.1.0.70"),
    }
    image = fake.image(layer_of(packages))
    text = DEPLOYMENT.replace("        compatgate.dev/stack: STACK\n", "        x: y\n")
    cache = {"XDG_CACHE_HOME": own_cache(tmp_path)}
    matrix = ["matrix", "import", str(ROOT / "matrix" / "examples"), "--reason", "x"]
    database = ["--database", str(tmp_path / "gate.db")]
    assert compatgate(tmp_path, *matrix, *database).returncode == 0
    command = ["k8s", "check", "app.yaml", "--namespace", "ml-train", *database]
    for name, registry, status, said in (
        (image, ["--registry", image.partition("/")[0]], 0, "PyTorch 2.4.1+cu124"),
        (image, [], 1, "left open: the image is not known"),
        (f"{image[:-4]}ffff", ["--registry", image.partition("/")[0]], 1, "the image is not known"),
    ):
        (tmp_path / "app.yaml").write_text(text.replace("registry.example/trainer:1", name))
        done = compatgate(tmp_path, *command, *registry, **cache)
        assert done.returncode == status, done.stdout + done.stderr
        assert said in done.stdout
