"""Files made by the real nvcc are read as its own cuobjdump lists them."""

from __future__ import annotations

import itertools

import pytest

from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.errors import BadInput

_PLAIN = (
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
)
_SPECIAL = (
    "-gencode=arch=compute_90a,code=sm_90a",
    "-gencode=arch=compute_100f,code=[sm_100f,compute_100f]",
    "-gencode=arch=compute_121a,code=[sm_121a,compute_121a]",
    "-gencode=arch=compute_120,code=sm_120",
)
_LTO = ("-rdc=true", "-gencode=arch=compute_80,code=[lto_80,sm_80]")
MADE = {
    "several architectures": (".so", *_PLAIN),
    "architecture- and family-specific": (".so", *_SPECIAL),
    "PTX only": (".so", "-gencode=arch=compute_80,code=compute_80"),
    "not compressed": (".so", "-no-compress", *_PLAIN),
    **{
        f"compressed for {mode}": (  # without the host's half, which takes as long to compile
            ".fatbin",
            "-Xfatbin=-compress-all",
            f"--compress-mode={mode}",
            *_PLAIN,
        )
        for mode in ("default", "size", "speed", "balance", "none")
    },
    "concatenated": (".so", "--concat", *_PLAIN, *_SPECIAL[:3]),
    "with debug information": (".so", "-G", *_PLAIN),
    "an object": (".o", *_PLAIN),
    "a relocatable object": (".o", "-rdc=true", *_PLAIN),
    "linked from relocatable code": (".so", "-rdc=true", *_PLAIN),
    "a link-time object": (".o", *_LTO),
    "a fatbinary": (".fatbin", *_PLAIN),
    "a static library": (".a", *_PLAIN),
}


class Stream:
    """A file that can only be read."""

    def __init__(self, file) -> None:
        self.read = file.read


def _streamed(path) -> GpuCode:
    with path.open("rb") as file:
        return read_gpu_code(Stream(file), size=path.stat().st_size)


def _kinds(code: GpuCode, kind: str) -> list[str]:
    return sorted(e.name for e in code.entries if e.kind == kind)


@pytest.mark.parametrize("what", MADE)
def test_entries_agree_with_those_of_cuobjdump(what, toolkit):
    suffix, *flags = MADE[what]
    path = toolkit.make(suffix, *flags)
    code, listing = read_gpu_code(path), toolkit.listing(path)
    assert _kinds(code, "sass") == listing.sass
    assert _kinds(code, "ptx") == listing.ptx
    assert sorted(e.ptx_isa for e in code.entries if e.kind == "ptx") == listing.isa
    assert listing.sass or listing.ptx


@pytest.mark.parametrize("what", MADE)
def test_entries_agree_with_the_names_that_cuobjdump_lists(what, toolkit):
    suffix, *flags = MADE[what]
    path = toolkit.make(suffix, *flags)
    cubins, ptx = toolkit.names(path)
    code = read_gpu_code(path)
    linked = [e for e in code.entries if not e.relocatable] or code.entries
    sass = {e.name.removeprefix("sm_").removesuffix("f") for e in linked if e.kind == "sass"}
    assert sass == cubins
    assert {e.name.removeprefix("compute_") for e in linked if e.kind == "ptx"} == ptx


@pytest.mark.parametrize("what", MADE)
def test_a_stream_is_read_like_a_file(what, toolkit):
    suffix, *flags = MADE[what]
    path = toolkit.make(suffix, *flags)
    assert _streamed(path) == read_gpu_code(path)


@pytest.mark.parametrize(
    ("mode", "compressed"),
    [("default", True), ("size", True), ("speed", True), ("balance", True), ("none", False)],
)
def test_compressed_entries_are_known_as_such(mode, compressed, toolkit):
    suffix, *flags = MADE[f"compressed for {mode}"]
    entries = read_gpu_code(toolkit.make(suffix, *flags)).entries
    assert {e.compressed for e in entries} == {compressed}


def test_family_and_architecture_specific_code_keep_their_letters(toolkit):
    suffix, *flags = MADE["architecture- and family-specific"]
    assert [a.name for a in read_gpu_code(toolkit.make(suffix, *flags)).arch] == [
        "sm_90a",
        "sm_100f",
        "sm_120",
        "sm_121a",
        "compute_100f",
        "compute_121a",
    ]


def test_each_translation_unit_is_a_region(toolkit):
    path = toolkit.make(".so", _PLAIN[0], sources=("one", "two", "three"))
    assert {e.region for e in read_gpu_code(path).entries} >= {0, 1, 2}
    assert _kinds(read_gpu_code(path), "sass") == toolkit.listing(path).sass


def test_linked_relocatable_code_has_linked_and_relocatable_entries(toolkit):
    suffix, *flags = MADE["linked from relocatable code"]
    code = read_gpu_code(toolkit.make(suffix, *flags))
    assert {(e.name, e.relocatable) for e in code.entries} >= {
        ("sm_80", False),
        ("sm_80", True),
        ("compute_90", True),
    }
    assert [a.name for a in code.arch] == ["sm_80", "sm_90", "compute_90"]


def test_link_time_code_is_listed_and_is_not_runnable(toolkit):
    path = toolkit.make(".o", "-rdc=true", "-gencode=arch=compute_80,code=lto_80")
    code = read_gpu_code(path)
    assert [(e.kind, e.name) for e in code.entries] == [("lto", "lto_80")]
    assert code.arch == ()


@pytest.mark.parametrize("how", ["--strip-all", "--strip-debug", "--strip-unneeded"])
def test_a_stripped_library_keeps_its_code(how, toolkit, tmp_path):
    path = toolkit.make(".so", *_PLAIN)
    toolkit.run("strip", how, "-o", tmp_path / "stripped.so", path)
    assert read_gpu_code(tmp_path / "stripped.so").arch == read_gpu_code(path).arch


def test_code_is_found_when_its_section_was_renamed(toolkit, tmp_path):
    path, other = toolkit.make(".so", *_PLAIN), tmp_path / "renamed.so"
    toolkit.run("objcopy", "--rename-section", ".nv_fatbin=.rodata.gpu", path, other)
    assert read_gpu_code(other).arch == read_gpu_code(path).arch
    assert _streamed(other).arch == read_gpu_code(path).arch


def test_a_separate_file_of_debug_information_has_no_code(toolkit, tmp_path):
    path, other = toolkit.make(".so", *_PLAIN), tmp_path / "x.debug"
    toolkit.run("objcopy", "--only-keep-debug", path, other)
    assert read_gpu_code(other).entries == ()
    assert _streamed(other).entries == ()


def test_a_library_without_kernels_has_no_code(toolkit, tmp_path):
    (tmp_path / "x.c").write_text("int x(void) { return 1; }\n")
    toolkit.run("gcc", "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c")
    assert read_gpu_code(tmp_path / "x.so") == GpuCode()
    assert _streamed(tmp_path / "x.so") == GpuCode()


@pytest.mark.parametrize("arch", ["80", "90", "90a", "100", "100a", "100f", "103f", "120", "121a"])
def test_a_cubin_names_its_architecture_and_its_toolkit(arch, toolkit, tmp_path):
    ptx, cubin = toolkit.make(".ptx", "-arch=compute_80"), tmp_path / "made.cubin"
    toolkit.run("ptxas", f"-arch=sm_{arch}", ptx, "-o", cubin)  # nvcc's own last step
    (entry,) = read_gpu_code(cubin).entries
    assert entry.name == f"sm_{arch}"
    assert entry.cuda == read_gpu_code(ptx).cuda
    assert entry.cuda is not None


@pytest.mark.parametrize("arch", ["80", "90a", "100f"])
def test_a_ptx_file_names_its_target(arch, toolkit):
    (entry,) = read_gpu_code(toolkit.make(".ptx", f"-arch=compute_{arch}")).entries
    assert entry.name == f"compute_{arch}"


def test_handwritten_ptx_keeps_its_own_isa_version_in_a_fatbinary(toolkit, tmp_path):
    (tmp_path / "h.ptx").write_text(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(){ret;}\n"
    )
    for compress in ("true", "false"):
        image = f"--image3=kind=ptx,sm=80,file={tmp_path / 'h.ptx'}"
        out = tmp_path / "h.fatbin"
        toolkit.run("fatbinary", "-64", f"--compress={compress}", "--create", out, image)
        assert [e.ptx_isa for e in read_gpu_code(out).entries] == ["7.0"]


def test_identifiers_and_options_in_headers_are_passed_over(toolkit, tmp_path):
    ptx, cubin = toolkit.make(".ptx", "-arch=compute_80"), toolkit.make(".cubin", "-arch=sm_90a")
    images = [f"--image3=kind=ptx,sm=80,file={ptx}", f"--image3=kind=elf,sm=90a,file={cubin}"]
    for flags in ([], ["--concat"], ["-g"], ["--cmdline=-O1 -v"], ["-compress-all", "--concat"]):
        out = tmp_path / "named.fatbin"
        toolkit.run("fatbinary", "-64", "--ident=some.name", *flags, "--create", out, *images)
        assert [a.name for a in read_gpu_code(out).arch] == ["sm_90a", "compute_80"]


@pytest.mark.parametrize("what", ["several architectures", "concatenated", "a static library"])
def test_a_truncated_file_is_refused_wherever_it_ends(what, toolkit):
    suffix, *flags = MADE[what]
    path = toolkit.make(suffix, *flags)
    whole = path.read_bytes()
    whole = whole.rstrip(b"\n") if suffix == ".a" else whole
    step = max(len(whole) // 200, 1)
    for length in itertools.chain(range(64), range(64, len(whole) - 64, step)):
        short = path.with_name("short" + suffix)
        short.write_bytes(whole[:length])
        if suffix == ".a" and length == 8:
            continue  # an archive without members
        with pytest.raises(BadInput) as error:
            read_gpu_code(short)
        assert isinstance(error.value.value, int)


def test_a_damaged_header_is_refused_with_its_offset(toolkit):
    suffix, *flags = MADE["several architectures"]
    whole = bytearray(toolkit.make(suffix, *flags).read_bytes())
    place = whole.index(bytes.fromhex("50ed55ba"))
    damaged = toolkit.folder / "damaged.so"
    for offset, value in ((0, 0), (4, 9), (6, 3), (15, 0xFF), (16, 0x77), (20, 0), (31, 0xFF)):
        data = bytearray(whole)
        data[place + offset] ^= value or 0xFF
        damaged.write_bytes(data)
        with pytest.raises(BadInput, match="at byte") as error:
            read_gpu_code(damaged)
        assert isinstance(error.value.value, int)
        assert place <= error.value.value < len(whole)
        with pytest.raises(BadInput):
            _streamed(damaged)
