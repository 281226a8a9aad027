"""Bills of materials: CycloneDX and SPDX, as their tools write them."""

from __future__ import annotations

import json
import sys

import pytest

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.errors import BadInput, InconclusiveInput

IMAGE = {
    "torch": "2.4.1+cu124",
    "cudnn": "9.1.0.70+cu12",
    "nccl": "2.21.5+cu124",
    "cuda": "12.4.127",
    "cublas": "12.4.5.8",
    "cuda-compat": "12.4",
    "tensorrt": "10.1.0.27+cu124",
    "python": "3.11.9",
}


def found(reading):
    return {o.component: o.version for o in reading.observations}


def test_spdx_says_what_is_in_an_image(read):
    reading = read("image.spdx.json")
    assert reading.format == "SPDX 2.3"
    assert found(reading) == IMAGE
    assert (reading.open, reading.conflicts) == ((), ())


def test_cyclonedx_says_what_is_installed(read):
    reading = read("torch.cdx.json")
    assert reading.format == "CycloneDX 1.6"
    assert found(reading) == {
        "torch": "2.4.1",
        "cuda": "12.1.105",
        "cudnn": "9.1.0.70+cu12",
        "nccl": "2.20.5+cu12",
        "cublas": "12.1.3.1",
        "nvidia-cuda-cupti-cu12": "12.1.105",
        "nvidia-cuda-nvrtc-cu12": "12.1.105",
        "nvidia-cufft-cu12": "11.0.2.54",
        "nvidia-curand-cu12": "10.3.2.106",
        "nvidia-cusolver-cu12": "11.4.5.107",
        "nvidia-cusparse-cu12": "12.1.0.106",
        "nvidia-nvjitlink-cu12": "12.9.86",
        "nvidia-nvtx-cu12": "12.1.105",
        "triton": "3.0.0",
    }


def test_the_origin_is_the_documents_own_reference(read):
    spdx = {o.component: o.origin for o in read("image.spdx.json").observations}
    assert spdx["torch"] == "image.spdx.json: SPDXRef-Package-python-torch"
    cyclonedx = {o.component: o.origin for o in read("torch.cdx.json").observations}
    assert cyclonedx["cudnn"] == "torch.cdx.json: requirements-L77"


def test_a_lock_exported_for_every_platform_is_open_without_one(read):
    reading = read("uv.cdx.json")
    assert "torch: uv.cdx.json has 2.4.1+cpu and 2.4.1+cu121" in reading.open


def test_with_a_platform_uvs_markers_decide(read):
    reading = read("uv.cdx.json", platform=Platform())
    assert found(reading)["torch"] == "2.4.1+cu121"
    assert reading.open == ()


def _bom(*components: dict[str, object]) -> str:
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components}
    return json.dumps(document)


def _component(
    purl: str = "", name: str = "x", version: str = "", **more: object
) -> dict[str, object]:
    body: dict[str, object] = {"type": "library", "bom-ref": f"ref-{name}-{purl}", "name": name}
    return {
        **body,
        **({"purl": purl} if purl else {}),
        **({"version": version} if version else {}),
        **more,
    }


@pytest.mark.parametrize(
    ("purl", "component", "version"),
    [
        ("pkg:pypi/torch@2.4.1%2Bcu121", "torch", "2.4.1+cu121"),
        ("pkg:pypi/nvidia-cudnn-cu12@9.1.0.70", "cudnn", "9.1.0.70+cu12"),
        (
            "pkg:pypi/torch@2.4.1?repository_url=https://download.pytorch.org/whl/cu124",
            "torch",
            "2.4.1+cu124",
        ),
        (
            "pkg:conda/pytorch@2.3.1?build=py3.11_cuda12.1_cudnn8.9.2_0&subdir=linux-64",
            "torch",
            "2.3.1+conda.cu121",
        ),
        (
            "pkg:conda/pytorch@2.5.1?build=cuda126_py312h1_0&channel=conda-forge&subdir=linux-64",
            "torch",
            "2.5.1+conda.forge.cu126",
        ),
        ("pkg:conda/cuda-version@12.4", "cuda", "12.4"),
        ("pkg:deb/ubuntu/libcudnn8@8.9.7.29-1%2Bcuda12.2?arch=amd64", "cudnn", "8.9.7.29+cu122"),
        ("pkg:deb/ubuntu/cuda-cudart-12-4@12.4.127-1", "cuda", "12.4.127"),
        ("pkg:deb/ubuntu/nvidia-cuda-toolkit@12.0.140~12.0.1-4build4", "cuda", "12.0.140"),
        ("pkg:deb/ubuntu/cuda-compat-12-8@570.124.06-0ubuntu1", "cuda-compat", "12.8"),
        ("pkg:rpm/rhel/libcudnn8@8.9.7.29-1.cuda12.2?arch=x86_64", "cudnn", "8.9.7.29+cu122"),
        ("pkg:rpm/rocky/libcudnn9-cuda-12@9.1.0.70-1?arch=x86_64", "cudnn", "9.1.0.70+cu12"),
        ("pkg:rpm/rhel/libnccl@2.21.5-1%2Bcuda12.4", "nccl", "2.21.5+cu124"),
        ("pkg:generic/cudnn@9.1.0", "cudnn", "9.1.0"),
        ("pkg:generic/python@3.11.9", "python", "3.11.9"),
    ],
)
def test_package_urls_of_every_kind_give_components(read, purl, component, version):
    observation = read("sbom.json", _bom(_component(purl))).observations[0]
    assert (observation.component, observation.version) == (component, version)
    assert observation.confidence == "metadata"


@pytest.mark.parametrize(
    "purl",
    [
        "pkg:npm/torch@1.0.0",
        "pkg:deb/ubuntu/libcudnn9-dev-cuda-12@9.1.0.70-1",
        "pkg:deb/ubuntu/nvidia-driver-550@550.54.15-0ubuntu1",
        "pkg:pypi/torchmetrics@1.4.0",
        "pkg:oci/torch@sha256%3A00",
        "pkg:generic/driver@550.54.15",
    ],
)
def test_what_only_resembles_a_component_is_left_out(read, purl):
    reading = read("sbom.json", _bom(_component(purl)))
    assert reading.observations == ()
    assert reading.open == ("sbom.json holds no component of a GPU stack",)


def test_a_part_without_package_url_is_a_guess_that_yields_to_a_known_one(read):
    guess = _component(name="cudnn", version="8.9.7")
    assert read("sbom.json", _bom(guess)).observations[0].confidence == "derived"
    known = _component("pkg:deb/ubuntu/libcudnn9-cuda-12@9.1.0.70-1")
    assert found(read("sbom.json", _bom(guess, known))) == {"cudnn": "9.1.0.70+cu12"}


def test_nested_parts_and_the_described_one_are_read(read):
    inner = _component("pkg:pypi/torch@2.4.1%2Bcu121")
    assert found(read("sbom.json", _bom(_component(name="app", components=[inner]))))["torch"]
    document = json.loads(_bom()) | {"metadata": {"component": inner}}
    assert found(read("sbom.json", json.dumps(document)))["torch"] == "2.4.1+cu121"


def test_two_versions_stay_open(read):
    text = _bom(_component("pkg:pypi/torch@2.4.1"), _component("pkg:pypi/torch@2.5.1"))
    assert "torch: sbom.json has 2.4.1 and 2.5.1" in read("sbom.json", text).open


def test_a_cudnn_for_another_cuda_is_a_conflict(read):
    text = _bom(
        _component("pkg:deb/ubuntu/cuda-cudart-12-4@12.4.127-1"),
        _component("pkg:deb/ubuntu/libcudnn8@8.9.7.29-1%2Bcuda11.8"),
    )
    assert "CUDA 11.8" in read("sbom.json", text).conflicts[0].message


@pytest.mark.parametrize("data", ["", "  \n"])
def test_an_empty_document_is_inconclusive(read, data):
    with pytest.raises(InconclusiveInput):
        read("sbom.json", data)


def test_a_document_that_lists_nothing_is_inconclusive(read):
    with pytest.raises(InconclusiveInput, match="lists no components"):
        read("sbom.json", _bom())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sbom.json", "{}"),
        ("sbom.json", '{"bomFormat": "CycloneDX", "components": 3}'),
        ("sbom.json", '{"bomFormat": "CycloneDX", '),
        ("sbom.json", _bom({"type": "no-such-type", "name": "torch"})),
        ("sbom.json", '{"spdxVersion": "SPDX-2.3", "packages": [{"name": "x"}]}'),
        ("sbom.json", '{"spdxVersion": "SPDX-2.3", "packages": 3}'),
        ("sbom.spdx", "SPDXVersion: SPDX-2.3\nnonsense\n"),
        ("sbom.xml", '<bom xmlns="http://cyclonedx.org/schema/bom/1.5"><components>'),
        ("sbom.txt", "torch==2.4.1\n"),
    ],
)
def test_what_is_malformed_is_bad_input_and_names_the_file(read, name, text):
    with pytest.raises(BadInput) as caught:
        read(name, text)
    assert str(caught.value).startswith(name)


_TIMES = (
    "2024-01-02T03:04:05.123456789Z",
    "2024-01-02T03:04:05+01:00",
    "2024-01-02T03:04:05",
    "2024-01-02",
    "",
)


def test_a_creation_time_may_have_any_form(read, files):
    """The specification allows one form; scanners write others."""
    text = (files / "image.spdx.json").read_text()
    for time in _TIMES:
        assert found(read("x.json", text.replace("2026-11-01T00:00:00Z", time))) == IMAGE, time


def test_packages_without_a_place_to_load_them_from_are_read(read, files):
    """Trivy writes no ``downloadLocation``, which the specification asks for."""
    body = json.loads((files / "image.spdx.json").read_text())
    for package in body["packages"]:
        package.pop("downloadLocation", None)
    assert found(read("x.json", json.dumps(body))) == IMAGE


def test_a_malformed_package_url_is_refused(read):
    with pytest.raises(BadInput, match="is not a package URL"):
        read("sbom.json", _bom(_component("pkg:torch", name="torch")))


_TAG_VALUE = "SPDXVersion: SPDX-2.3\nSPDXID: SPDXRef-DOCUMENT\nPackageName: torch\n"
_YAML = "SPDXID: SPDXRef-DOCUMENT\nspdxVersion: SPDX-2.3\npackages: []\n"
_XML = "<?xml version='1.0'?>\n<Document><SPDXID>SPDXRef-DOCUMENT</SPDXID></Document>"
_BOM_XML = '<bom xmlns="http://cyclonedx.org/schema/bom/1.5"><components/></bom>'


@pytest.mark.parametrize(
    ("text", "notation", "instead"),
    [
        (_TAG_VALUE, "SPDX in tag-value", "spdx-json"),
        (_YAML, "SPDX in YAML", "spdx-json"),
        (_XML, "SPDX in XML", "spdx-json"),
        (_BOM_XML, "CycloneDX in XML", "cyclonedx-json"),
    ],
)
def test_other_notations_are_refused_with_the_form_to_make(read, text, notation, instead):
    with pytest.raises(BadInput, match=f"is {notation}, which is not supported") as caught:
        read("sbom", text)
    assert f"use {instead}" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        '{"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": []}',
        '{"payloadType": "application/vnd.in-toto+json", "payload": "e30="}',
    ],
)
def test_what_is_no_bill_is_refused_with_what_is(read, text):
    with pytest.raises(BadInput, match="not a bill of materials") as caught:
        read("sbom.json", text)
    assert "CycloneDX or SPDX 2.x" in caught.value.hint


def test_what_is_nested_too_deeply_is_refused(read):
    text = '{"bomFormat": "CycloneDX", "components": ' + "[" * 500 + "]" * 500 + "}"
    with pytest.raises(BadInput, match="nested too deeply"):
        read("sbom.json", text)


def test_without_the_extra_the_error_names_it(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "packageurl", None)
    with pytest.raises(BadInput, match=r"\.\[sbom\]"):
        read("torch.cdx.json")


def test_a_system_package_whose_version_cannot_be_read_is_said(read):
    reading = read("sbom.json", _bom(_component("pkg:deb/ubuntu/libcudnn9-cuda-12@unknown")))
    assert reading.observations == ()
    assert "'unknown' is not a version of cudnn" in reading.open[0]
