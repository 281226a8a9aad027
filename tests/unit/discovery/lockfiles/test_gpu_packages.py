"""Which packages of a lock belong into a GPU stack, and what is known of their files."""

import pytest
from known_packages import PACKAGES

from compatgate.core.facts.packages import LockedPackage, explain_gpu_use

DIGEST = "ab" * 32
UV = """version = 1
requires-python = ">=3.12"

[[package]]
name = "app"
version = "0.1"
source = { virtual = "." }
dependencies = [ { name = "fast" }, { name = "torch" }, { name = "numpy" }, { name = "plain" } ]

[[package]]
name = "fast"
version = "1.0"
source = { registry = "https://pypi.org/simple" }
dependencies = [ { name = "torch" } ]
wheels = [
    { url = "https://example.org/fast-1.0-cp312-cp312-TAG.whl", hash = "sha256:DIGEST" },
]

[[package]]
name = "plain"
version = "1.0"
source = { registry = "https://pypi.org/simple" }
dependencies = [ { name = "torch" } ]
wheels = [ { url = "https://example.org/plain-1.0-py3-none-any.whl", hash = "sha256:DIGEST" } ]

[[package]]
name = "numpy"
version = "2.1.0"
source = { registry = "https://pypi.org/simple" }
wheels = [ { url = "https://example.org/numpy-2.1.0-cp312-cp312-TAG.whl" } ]

[[package]]
name = "torch"
version = "2.9.1"
source = { registry = "https://pypi.org/simple" }
wheels = [ { url = "https://example.org/torch-2.9.1-cp312-cp312-TAG.whl", hash = "sha256:DIGEST" } ]
""".replace("TAG", "manylinux_2_28_x86_64").replace("DIGEST", DIGEST)


def named(reading):
    return {o.component: o.version for o in reading.observations}


@pytest.mark.parametrize(
    "name",
    ["xformers", "bitsandbytes", "triton", "cudf-cu12", "nvidia-nvjitlink-cu12", "liger-kernel",
     "spconv-cu120", "some-gpu", "torch-anything", "flashinfer-python", "deepspeed"],
)  # fmt: skip
def test_what_a_name_or_the_facts_say_counts(name):
    assert explain_gpu_use(LockedPackage(name), PACKAGES)


@pytest.mark.parametrize(
    "name",
    ["numpy", "pyarrow", "opencv-python", "tokenizers", "nvidia-ml-py", "torchmetrics", "requests",
     "onnxruntime", "faiss-cpu", "transformers"],
)  # fmt: skip
def test_ordinary_packages_are_silent(name):
    assert (
        explain_gpu_use(LockedPackage(name, depends=("torch",), compiled=False), PACKAGES) is None
    )


@pytest.mark.parametrize(
    ("package", "counts"),
    [
        (LockedPackage("odd", depends=("torch",), compiled=True), True),
        (LockedPackage("odd", depends=("xformers",), compiled=True), True),
        (LockedPackage("odd", depends=("numpy",), compiled=True), False),
        (LockedPackage("odd", depends=("torch",), compiled=False), False),
        (LockedPackage("odd", depends=("torch",)), False),
        (LockedPackage("odd", build="cu128"), True),
        (LockedPackage("odd", build="rocm6.2"), True),
        (LockedPackage("odd", build="cpu"), False),
    ],
)
def test_a_build_or_a_compiled_tie_to_native_code_counts(package, counts):
    assert (explain_gpu_use(package, PACKAGES) is not None) is counts


def test_a_lock_names_its_gpu_packages_and_their_files(read):
    reading = read("uv.lock", UV, target="linux x86_64 3.12")
    assert named(reading) == {"torch": "2.9.1", "fast": "1.0"}
    assert reading.wheels["fast"].file == "fast-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    assert reading.wheels["torch"].sha256 == "ab" * 32


def test_a_package_whose_version_is_open_is_open_by_name(read):
    reading = read("requirements.txt", "torch==2.9.1+cu128\nxformers>=0.0.30\n")
    assert any(text.startswith("xformers: '>=0.0.30' allows several") for text in reading.open)


def test_a_build_of_another_index_keeps_its_label(read):
    text = "xformers @ https://download.pytorch.org/whl/cu126/xformers-0.0.30-cp311-cp311-manylinux_2_28_x86_64.whl\n"
    assert named(read("requirements.txt", text))["xformers"] == "0.0.30+cu126"


def test_a_lock_of_packages_alone_is_not_unrelated(read):
    reading = read("requirements.txt", "bitsandbytes==0.45.5\nrequests==2.32.0\n")
    assert not reading.unrelated
    assert named(reading) == {"bitsandbytes": "0.45.5"}


def test_a_conda_build_for_cuda_is_a_build_of_its_own(read):
    url = "https://conda.anaconda.org/conda-forge/linux-64/xformers-0.0.28-cuda126py311_0.conda"
    reading = read("explicit.txt", f"@EXPLICIT\n{url}\n")
    assert named(reading) == {"xformers": "0.0.28+conda"}


def test_what_compiles_options_alone_counts_beside_others_and_makes_no_gpu_stack(read):
    alone = read("requirements.txt", "transformers==4.57.6\nrequests==2.32.0\n")
    beside = read("requirements.txt", "transformers==4.57.6\nbitsandbytes==0.45.5\n")
    unpinned = read("requirements.txt", "transformers\nbitsandbytes==0.45.5\n")
    assert (named(alone), alone.unrelated) == ({}, True)
    assert named(beside) == {"transformers": "4.57.6", "bitsandbytes": "0.45.5"}
    assert (named(unpinned), unpinned.open) == ({"bitsandbytes": "0.45.5"}, ())


def test_jax_without_a_plugin_is_a_package_for_cpus_beside_another_framework(read):
    text = "torch==2.9.1+cu128\njax==0.7.1\njaxlib==0.7.1\n"
    plugin = "jax-cuda12-plugin==0.7.1\n"
    assert "jax" not in named(read("requirements.txt", text))
    found = named(read("requirements.txt", text + plugin))
    assert (found["jax"], found["jax-cuda12-plugin"]) == ("0.7.1+cuda12", "0.7.1")
    assert "jax" in named(read("requirements.txt", text.partition("\n")[2]))


def test_a_lock_says_where_the_files_of_a_package_are(read):
    origin = read("uv.lock", UV, "linux x86_64 3.12").origins["fast"]
    assert origin.indexes == ("https://pypi.org/simple",)
    assert [(wheel.url, wheel.sha256) for wheel in origin.wheels] == [
        ("https://example.org/fast-1.0-cp312-cp312-manylinux_2_28_x86_64.whl", DIGEST)
    ]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("", ("",)),
        ("-i https://one.example/simple\n", ("https://one.example/simple",)),
        ("--extra-index-url https://two.example\n", ("", "https://two.example")),
        ("-f https://links.example\n", ("",)),
    ],
)
def test_requirements_say_which_indexes_are_asked(read, options, asked):
    text = f"{options}fast-cu12==1.0 --hash=sha256:{DIGEST}\n"
    origin = read("requirements.txt", text).origins["fast-cu12"]
    assert (origin.indexes, origin.digests, origin.wheels) == (asked, (DIGEST,), ())


def test_requirements_name_a_wheel_by_its_url(read):
    url = "https://example.org/fast_cu12-1.0-py3-none-any.whl"
    text = f"fast-cu12 @ {url}#sha256={DIGEST}\n"
    found = read("requirements.txt", text)
    (wheel,) = found.origins["fast-cu12"].wheels
    assert (wheel.url, wheel.sha256) == (url, DIGEST)
    assert found.wheels["fast-cu12"].sha256 == DIGEST
