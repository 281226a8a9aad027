"""Packages of a folder: which are named, which files are theirs, and what these hold."""

from __future__ import annotations

import pytest
from gpu_binaries import make_entry, make_fatbin
from installed import SITE, install, install_conda, unpack
from pe_files import make_dll
from wheels import make_shared_object

from compatgate.core.stack import parse_stack
from compatgate.discovery.local import inspect_path

A_SYMBOL, ANOTHER = "_ZN3c105ErrorC1ESs", "_ZN2at4_ops3addE"
PLAIN = make_shared_object(needs=["libm.so.6"], data=bytes(2000))


def code(*archs: int, **fields) -> bytes:
    unit = make_fatbin(*(make_entry("sass", arch) for arch in archs))
    return make_shared_object(code=unit, **fields)


def extension(*symbols: str, archs=(80,)) -> bytes:
    """An extension of torch that asks for these symbols."""
    return code(*archs, needs=["libc10.so"], undefined=[(name, "") for name in symbols])


def torch(*symbols: str, version="2.9.1+cu128", without=()) -> dict[str, bytes]:
    """An installed torch that defines these symbols."""
    names = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so")
    files = {
        f"torch/lib/{name}": code(80, 90, defined=symbols) for name in names if name not in without
    }
    return install("torch", version, files)


@pytest.fixture
def stack(tmp_path, facts):
    """The stack of a folder with these distributions."""

    def read(*parts):
        root = unpack(tmp_path / "root", *parts)
        found = inspect_path(str(root), facts.arch, facts.packages)
        if found.stack:
            parse_stack(found.stack)
        return found.stack

    return read


def paths(record):
    return [library["path"] for library in record["libraries"]]


# --- which packages ------------------------------------------------------------------------------


def test_a_package_is_named_by_what_its_files_hold(stack):
    found = stack(install("my-kernels", "1.0", {"my_kernels/_C.so": code(80)}))
    assert found["my-kernels"] == "1.0"
    (library,) = found["measured"]["my-kernels"]["libraries"]
    assert library == {"path": "my_kernels/_C.so", "sass": {"sm_80": 1}, "units": 1}
    assert "arch" not in found


@pytest.mark.parametrize("name", ["plain", "numpy", "plain-gpu", "opencv-python"])
def test_a_package_whose_files_carry_nothing_is_silent(stack, name):
    assert stack(install(name, "1.0", {"plain/_C.so": PLAIN})) == {}
    opener = make_shared_object(needs=["libm.so.6"], data=b"\0libcuda.so.1\0" + bytes(2000))
    assert stack(install(name, "1.0", {"plain/_C.so": opener})) == {}


def test_a_package_that_is_linked_against_cuda_is_named_without_code(stack):
    linked = make_shared_object(needs=["libcudart.so.12"], data=bytes(2000))
    found = stack(install("linked", "1.0", {"linked/_C.so": linked}))
    assert found["measured"]["linked"]["libraries"][0]["needs"] == ["libcudart.so.12"]


def test_a_package_that_the_facts_name_without_code_of_its_own_has_a_record(stack):
    found = stack(install("liger-kernel", "0.5.0", requires=["torch>=2.1.2", "triton>=2.3.1"]))
    assert found["measured"]["liger-kernel"]["requires"] == ["torch>=2.1.2", "triton>=2.3.1"]


def test_a_package_whose_files_were_not_met_is_named_and_not_measured(stack):
    parts = install("xformers", "0.0.35", {"xformers/_C.so": code(80)})
    del parts[f"{SITE}/xformers/_C.so"]
    assert stack(parts) == {"xformers": "0.0.35"}


# --- whose file ------------------------------------------------------------------------------


def test_a_wheel_built_here_is_measured_with_its_tag_and_requirements(stack):
    parts = install(
        "flash-attn",
        "2.8.3",
        {"flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so": code(80, 90)},
        requires=["torch", "einops"],
    )
    record = stack(parts)["measured"]["flash-attn"]
    assert record["wheel"] == "flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl"
    assert record["requires"] == ["torch", "einops"]


def test_without_a_list_a_distribution_owns_the_folder_of_its_name(stack):
    found = stack(install("my-kernels", "1.0", {"my_kernels/a/_C.so": code(80)}, record=False))
    assert paths(found["measured"]["my-kernels"]) == ["my_kernels/a/_C.so"]


def test_an_egg_is_a_distribution(stack):
    egg = f"{SITE}/flash_attn-2.5.6-py3.12-linux-x86_64.egg"
    info = b"Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.5.6\n"
    found = stack({f"{egg}/EGG-INFO/PKG-INFO": info, f"{egg}/flash_attn_2_cuda.so": code(80)})
    assert (found["flash-attn"], paths(found["measured"]["flash-attn"])) == (
        "2.5.6",
        ["flash_attn_2_cuda.so"],
    )


def test_the_folder_of_an_editable_install_belongs_to_it(stack):
    parts = install("mine", "0.1", editable="/src/mine")
    found = stack(parts, {"src/mine/build/_C.so": code(80), "src/other/_C.so": code(75)})
    assert paths(found["measured"]["mine"]) == ["src/mine/build/_C.so"]
    assert found["arch"] == ["sm_75"]


def test_a_package_of_conda_is_named_by_its_record(stack):
    found = stack(install_conda("libmine", "2.0", {"lib/libmine.so": code(80)}))
    assert found["libmine"] == "2.0+conda"
    assert paths(found["measured"]["libmine"]) == ["lib/libmine.so"]


def test_what_conda_and_pip_both_list_is_one_package(stack):
    site = "lib/python3.12/site-packages"
    files = install("mine", "1.0", {"mine/_C.so": code(80)}, installer="conda", site=site)
    found = stack(install_conda("mine", "1.0", files))
    assert found["mine"] == "1.0+conda"
    assert paths(found["measured"]["mine"]) == ["mine/_C.so"]


def test_a_release_that_another_one_hides_keeps_todays_judgement(stack):
    one = install("mine", "1.0", {"mine/_C.so": code(80)}, site="a/site-packages")
    other = install("mine", "2.0", {"mine/_C.so": code(75)}, site="b/site-packages")
    found = stack(one, other)
    assert found["mine"] == "1.0"
    assert paths(found["measured"]["mine"]) == ["mine/_C.so"]
    assert found["arch"] == ["sm_75"]


def test_parts_of_a_framework_keep_todays_judgement(stack):
    found = stack(install("jaxlib", "0.4.30", {"jaxlib/x.so": code(80)}))
    assert found == {"arch": ["sm_80"]}


# --- what it holds ---------------------------------------------------------------------------


def test_kernel_files_that_a_package_lists_count(stack):
    cubin = make_fatbin(make_entry("sass", 90, "a"))
    files = {f"fast/k{n}.fatbin": cubin for n in range(12)}
    found = stack(install("fast", "1.0", files), {"elsewhere/x.fatbin": cubin})
    (library,) = found["measured"]["fast"]["libraries"]
    assert (library["path"], library["sass"]) == ("fast/*.fatbin", {"sm_90a": 12})


def test_the_toolkit_of_ptx_is_a_fact(stack):
    unit = make_fatbin(make_entry("ptx", 80, isa=(8, 4)))
    found = stack(install("fast", "1.0", {"fast/_C.so": make_shared_object(code=unit)}))
    (library,) = found["measured"]["fast"]["libraries"]
    assert (library["ptx_isa"], library["ptx_cuda"]) == ("8.4", "12.4")


def test_a_library_that_cannot_be_read_leaves_its_package_open(stack):
    found = stack(install("fast", "1.0", {"fast/_C.so": code(80)[:-30]}))
    assert found["measured"]["fast"]["unread"] == ["fast/_C.so"]
    assert "open" not in found


# --- torch -----------------------------------------------------------------------------------


def test_symbols_that_the_torch_beside_it_defines_are_found(stack):
    parts = install("ext", "1.0", {"ext.so": extension(A_SYMBOL)})
    record = stack(torch(A_SYMBOL), parts)["measured"]["ext"]
    assert record["torch_beside"] == "2.9.1"
    assert "torch_missing" not in record


def test_symbols_that_it_does_not_define_are_named(stack):
    parts = install("ext", "1.0", {"ext.so": extension(A_SYMBOL, ANOTHER)})
    record = stack(torch(A_SYMBOL), parts)["measured"]["ext"]
    assert record["torch_missing"] == [ANOTHER]


def test_extensions_may_define_symbols_for_each_other(stack):
    helper = code(80, needs=["libc10.so"], undefined=[(A_SYMBOL, "")], defined=[ANOTHER])
    files = {"ext.so": extension(A_SYMBOL, ANOTHER), "helper.so": helper}
    record = stack(torch(A_SYMBOL), install("ext", "1.0", files))["measured"]["ext"]
    assert "torch_missing" not in record


def test_of_a_torch_that_lacks_libraries_nothing_is_concluded(stack):
    parts = install("ext", "1.0", {"ext.so": extension(ANOTHER)})
    record = stack(torch(A_SYMBOL, without=("libtorch_cpu.so",)), parts)["measured"]["ext"]
    assert not {"torch_beside", "torch_missing"} & record.keys()


def test_torch_is_not_asked_for_its_own_symbols(stack):
    own = install("torch", "2.9.1", {"torch/lib/libtorch_cuda.so": extension(A_SYMBOL)})
    (library,) = stack(own)["measured"]["torch"]["libraries"]
    assert "torch" not in library


# --- Windows --------------------------------------------------------------------------------------

WARN = "?warn@c10@@YAXXZ"


def torch_of_windows(*symbols: str) -> dict[str, bytes]:
    """An installed torch for Windows whose libraries define these symbols."""
    names = ("c10.dll", "torch_cpu.dll", "torch_python.dll", "torch_cuda.dll")
    unit = make_fatbin(make_entry("sass", 80))
    files = {f"torch/lib/{name}": make_dll(name=name, exports=symbols, code=unit) for name in names}
    return install("torch", "2.9.1+cu128", files)


def extension_of_windows(*symbols: str) -> dict[str, bytes]:
    unit = make_fatbin(make_entry("sass", 80))
    data = make_dll(imports=[("c10.dll", symbols), ("cudart64_12.dll", ["f"])], code=unit)
    return install("my-kernels", "1.0", {"my_kernels/_C.cp312-win_amd64.pyd": data})


def test_libraries_of_windows_are_those_of_their_package(stack):
    (library,) = stack(extension_of_windows(WARN))["measured"]["my-kernels"]["libraries"]
    assert library["path"] == "my_kernels/_C.cp312-win_amd64.pyd"
    assert library["needs"] == ["c10.dll", "cudart64_12.dll"]
    assert library["sass"] == {"sm_80": 1}


def test_symbols_are_looked_up_in_the_dlls_of_torch(stack):
    record = stack(extension_of_windows(WARN), torch_of_windows(WARN))["measured"]["my-kernels"]
    assert record["torch_beside"] == "2.9.1"
    assert "torch_missing" not in record


def test_symbols_that_the_dlls_of_torch_do_not_define_are_named(stack):
    record = stack(extension_of_windows(WARN), torch_of_windows())["measured"]["my-kernels"]
    assert record["torch_missing"] == [WARN]


def test_a_damaged_library_of_windows_leaves_its_package_open(stack):
    found = stack(install("my-kernels", "1.0", {"my_kernels/_C.pyd": b"MZ" + bytes(300)}))
    assert found["measured"]["my-kernels"]["unread"] == ["my_kernels/_C.pyd"]
