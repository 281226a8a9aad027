"""requirements.txt: pins, indexes, includes, markers."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_packages import PACKAGES

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.errors import BadInput, InconclusiveInput

CU124 = "--index-url https://download.pytorch.org/whl/cu124\n"


def test_what_uv_exports_with_hashes_is_read(stack):
    assert stack("torch-2.4/requirements.txt")["torch"] == "2.4.1"
    assert stack("torch-2.4/requirements.txt")["cuda"] == "12.1.105"


def test_what_pip_compile_writes_is_read(stack):
    assert stack("jax/requirements.txt")["jax"] == "0.4.38+cuda12"


def test_markers_hold_for_the_target_and_not_for_this_machine(read):
    reading = read("torch-2.4/requirements.txt", target="windows x86_64 3.11")
    assert [o.component for o in reading.observations] == ["torch"]


def test_the_origin_is_the_line(read):
    text = "# pins\n\nnumpy==1.26.4\ntorch==2.4.1+cu121 \\\n    --hash=sha256:00\n"
    assert read("requirements.txt", text).observations[0].origin == "requirements.txt:4"


@pytest.mark.parametrize(
    "option", ["--index-url {}", "--index-url={}", "-i {}", "--extra-index-url {}", "-f {}/torch/"]
)
def test_an_index_names_the_build_of_torch(stack, option):
    index = option.format("https://download.pytorch.org/whl/cu124")
    assert stack("requirements.txt", f"{index}\ntorch==2.4.1\n") == {"torch": "2.4.1+cu124"}


def test_the_nightly_index_counts_too(stack):
    text = "--pre\n-i https://download.pytorch.org/whl/nightly/cu128\ntorch==2.9.0.dev20250801\n"
    assert stack("requirements.txt", text)["torch"].endswith("+cu128")


def test_an_index_for_jetson_is_told_from_those_for_servers(stack):
    index = "-i https://pypi.jetson-ai-lab.io/{}\ntorch==2.9.1\n"
    assert stack("requirements.txt", index.format("jp6/cu126"))["torch"] == "2.9.1+jp6.cu126"
    assert stack("requirements.txt", index.format("sbsa/cu130"))["torch"] == "2.9.1+cu130"


@pytest.mark.parametrize("name", ["tensorrt", "transformer-engine"])
def test_a_meta_package_is_the_package_that_it_brings(read, name):
    reading = read("requirements.txt", f"{name}==11.4.0.106\n{name}-cu13==11.4.0.106\n")
    assert [o.version for o in reading.observations] == ["11.4.0.106+cu13"]
    assert not any(name in sentence and " and " in sentence for sentence in reading.open)


def test_a_meta_package_of_another_version_is_left_open(read):
    reading = read("requirements.txt", "tensorrt==11.3.0.99\ntensorrt-cu13==11.4.0.106\n")
    assert any("11.3.0.99 and 11.4.0.106+cu13" in sentence for sentence in reading.open)


def test_an_index_for_everything_says_nothing_of_other_frameworks(stack):
    assert stack("requirements.txt", CU124 + "vllm==0.8.5\n")["vllm"] == "0.8.5"


def test_two_indexes_for_two_builds_decide_nothing(read):
    text = CU124 + "--extra-index-url https://download.pytorch.org/whl/cu121\ntorch==2.4.1\n"
    reading = read("requirements.txt", text)
    assert reading.observations[0].version == "2.4.1"
    assert "cu124 and cu121" in reading.conflicts[0].message


def test_a_label_wins_over_the_index_it_came_from(read):
    reading = read("requirements.txt", CU124 + "torch==2.4.1+cu121\n")
    assert reading.observations[0].version == "2.4.1+cu121"


@pytest.mark.parametrize(
    "line",
    [
        "torch @ https://download.pytorch.org/whl/cu121/torch-2.4.1%2Bcu121-cp311-cp311-linux_x86_64.whl",
        "https://download.pytorch.org/whl/cu121/torch-2.4.1%2Bcu121-cp311-cp311-linux_x86_64.whl",
        "./wheels/torch-2.4.1+cu121-cp311-cp311-linux_x86_64.whl",
        "torch @ file:///wheels/torch-2.4.1+cu121-cp311-cp311-linux_x86_64.whl#sha256=00",
        "torch===2.4.1+cu121",
        "Torch[opt-einsum] == 2.4.1+cu121 ; sys_platform == 'linux'",
    ],
)
def test_a_build_is_read_from_every_spelling(stack, line):
    assert stack("requirements.txt", line + "\n") == {"torch": "2.4.1+cu121"}


@pytest.mark.parametrize(
    "asked", ["torch", "torch>=2.4", "torch==2.4.*", "torch~=2.4.0", "torch<3,>2"]
)
def test_what_is_not_pinned_stays_open(read, asked):
    reading = read("requirements.txt", asked + "\n")
    assert reading.observations == ()
    advice, unpinned = reading.open
    assert advice.startswith("requirements.txt pins no release of torch: compatgate lock --in ")
    assert unpinned.startswith("torch:")
    assert "requirements.txt:1" in unpinned


def test_a_git_requirement_stays_open(read):
    text = "vllm @ git+https://github.com/vllm-project/vllm@main\n"
    assert "vllm" in read("requirements.txt", text).open[0]


def test_two_versions_of_one_component_stay_open(read):
    reading = read("requirements.txt", "torch==2.4.1+cu121\ntorch==2.5.1+cu124\n")
    assert "torch: requirements.txt has 2.4.1+cu121 and 2.5.1+cu124" in reading.open


def test_a_runtime_for_another_cuda_than_torch_is_a_conflict(read):
    text = "torch==2.4.1+cu118\nnvidia-cuda-runtime-cu12==12.4.127\n"
    conflict = read("requirements.txt", text).conflicts[0]
    assert conflict.component == "cuda"
    assert "CUDA 11.8" in conflict.message
    assert "12.4.127" in conflict.message


@pytest.mark.parametrize(
    ("framework", "runtime", "fits"),
    [
        ("torch==2.4.1+cu121", "12.4.127", True),
        ("torch==2.4.1+cu124", "12.4.127", True),
        ("torch==2.4.1+cu124", "12.1.105", False),
        ("cupy-cuda12x==13.3.0", "12.1.105", True),
        ("cupy-cuda11x==13.3.0", "12.1.105", False),
    ],
)
def test_a_runtime_serves_older_builds_of_its_major(read, framework, runtime, fits):
    reading = read("requirements.txt", f"{framework}\nnvidia-cuda-runtime-cu12=={runtime}\n")
    assert (reading.conflicts == ()) is fits


def test_packages_that_only_share_a_name_are_left_out(read):
    text = "onnxruntime==1.20.1\ncudnn==0.1\nnccl==1\ncuda==0.0.1\nnumpy==2.1\n"
    reading = read("requirements.txt", text)
    assert reading.observations == ()
    assert reading.open == ("requirements.txt holds no component of a GPU stack",)


def test_utf_16_as_powershell_writes_it_is_read():
    data = "torch==2.4.1+cu121\r\n".encode("utf-16")
    reading = read_lockfile("requirements.txt", data, known=PACKAGES, platform=Platform())
    assert reading.observations[0].version == "2.4.1+cu121"


def test_jaxlibs_old_label_names_the_cuda_of_jax(stack):
    text = "jax==0.4.20\njaxlib==0.4.20+cuda12.cudnn89\n"
    assert stack("requirements.txt", text)["jax"] == "0.4.20+cuda12.cudnn89"


def write(folder: Path, **files: str) -> Path:
    """Files of a project; returns its requirements.txt."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "requirements.txt"


def read_path(path: Path):
    return read_lockfile(path, path.read_bytes(), known=PACKAGES, platform=Platform(python="3.11"))


def test_includes_and_constraints_are_followed_within_the_folder(tmp_path):
    path = write(
        tmp_path,
        requirements_txt="-r sub/base.txt\n-c pins.txt\ntorch\n",
        sub__base_txt="-r ../gpu.txt\nnumpy\n",
        gpu_txt="nvidia-cudnn-cu12==9.1.0.70\n",
        pins_txt="torch==2.4.1+cu121\nvllm==0.6.3\n",
    )
    found = {o.component: (o.version, o.origin) for o in read_path(path).observations}
    assert found == {
        "cudnn": ("9.1.0.70+cu12", "gpu.txt:1"),
        "torch": ("2.4.1+cu121", "pins.txt:1"),
    }


@pytest.mark.parametrize("target", ["../secret.txt", "/etc/hostname", "a/../../secret.txt"])
def test_an_include_outside_the_folder_is_refused(tmp_path, target):
    (tmp_path / "secret.txt").write_text("torch==1.0\n")
    path = write(tmp_path / "project", requirements_txt=f"-r {target}\n")
    with pytest.raises(BadInput, match="outside of the folder") as caught:
        read_path(path)
    assert caught.value.field == "requirements.txt:1"


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "secret.txt").write_text("torch==1.0\n")
    path = write(tmp_path / "project", requirements_txt="-r inner.txt\n")
    (tmp_path / "project" / "inner.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(BadInput, match="cannot be read"):
        read_path(path)


def test_an_include_that_includes_itself_ends(tmp_path):
    path = write(tmp_path, requirements_txt="-r a.txt\n", a_txt="-r a.txt\ntorch==2.4.1+cu121\n")
    assert len(read_path(path).observations) == 1


def test_a_chain_of_includes_is_bounded(tmp_path):
    chain = {f"r{n}_txt": f"-r r{n + 1}.txt\n" for n in range(20)}
    path = write(tmp_path, requirements_txt="-r r0.txt\n", **chain, r20_txt="torch==2.4.1\n")
    with pytest.raises(BadInput, match="too many files"):
        read_path(path)


def test_a_name_alone_reads_no_other_file_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, base_txt="torch==2.4.1+cu121\n")
    reading = read_lockfile(
        "requirements.txt", b"-r base.txt\n", known=PACKAGES, platform=Platform()
    )
    assert reading.observations == ()
    assert "'base.txt', included at requirements.txt:1, was not read" in reading.open


@pytest.mark.parametrize(
    "text", ["torch==${TORCH_VERSION}\n", "torch=={{ version }}\n", "torch==@VERSION@\n"]
)
def test_a_template_is_inconclusive(read, text):
    with pytest.raises(InconclusiveInput, match="is a template"):
        read("requirements.txt", text)


def test_a_variable_for_credentials_is_no_template(stack):
    text = "-i https://${USER}:${TOKEN}@pypi.example.com/whl/cu124\ntorch==2.4.1\n"
    assert stack("requirements.txt", text)["torch"] == "2.4.1+cu124"


@pytest.mark.parametrize(
    "line", ["torch=2.4.1", "--frobnicate", "<<<<<<< HEAD", "torch==2.4.1 extra words"]
)
def test_a_line_that_is_no_requirement_is_named(read, line):
    with pytest.raises(BadInput) as caught:
        read("requirements.txt", f"numpy==1.26.4\n{line}\n")
    assert caught.value.field == "requirements.txt:2"


@pytest.mark.parametrize(
    ("index", "is_open"),
    [
        ("", False),
        ("--index-url https://pypi.org/simple\n", False),
        ("--index-url https://mirror.example/simple\n", True),
        ("--extra-index-url https://wheels.example/simple\n", True),
        ("--find-links https://wheels.example/torch.html\n", True),
        ("--index-url https://[\n", True),
    ],
)
def test_only_the_package_index_has_one_wheel_for_a_version(read, index, is_open):
    reading = read("requirements.txt", f"{index}torch==2.4.1\n")
    assert bool(reading.open) == is_open


def test_jax_without_a_plugin_is_not_taken_for_a_package_with_cuda(read):
    assert "jax 0.5.3" in read("requirements.txt", "jax==0.5.3\n").open[0]
