"""Spellings of GPUs: normal form, one SKU, families, MIG slices, capabilities, refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.catalog import load_facts
from compatgate.core.facts.nvidia import Gpu, Gpus
from compatgate.core.gpus import (
    GpuIndex,
    has_mig_profile,
    index_of,
    is_memory,
    is_variant,
    mig_profiles,
    normalise,
    resolve_gpu,
    split_profile,
)
from compatgate.errors import BadInput

GPUS = load_facts(overlays=[]).gpus

PIECES = sorted(
    {piece for name in (*GPUS.gpus, *GPUS.aliases) for piece in name.split("-")}
    | {"MIG", "1g.5gb", "1g.10gb+me", "3g.40gb", "SHARED", "sm_90", "9.0a", "80 GB", "nvidia.com/"}
)
spellings = st.one_of(
    st.text(max_size=150),
    st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=6).map("-".join),
)


def gpu(name: str, **changes: Any) -> Gpu:
    stated = {"capability": (9, 0), "segment": "datacenter", "first_branch": 520, **changes}
    return Gpu(name=name, **stated)


def table(*gpus: Gpu, **aliases: str) -> Gpus:
    return Gpus({g.name: g for g in gpus}, {normalise(k): v for k, v in aliases.items()})


def answered(text: str) -> Gpu | BadInput:
    try:
        return resolve_gpu(text, GPUS)
    except BadInput as error:
        return error


class TestNormalForm:
    @pytest.mark.parametrize(
        ("text", "normal"),
        [
            ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
            ("a100_sxm4 / 80 GiB", "a100-sxm4-80gb"),
            ("Tesla T4", "t4"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", "geforce-rtx-4090-laptop"),
            ("RTX4070TiSuper", "rtx-4070-ti-super"),
            ("GH200 144G HBM3e", "gh200-144gb-hbm3e"),
            ("T4G", "t4g"),
            ("", ""),
        ],
    )
    def test_vendor_case_separators_and_units_do_not_matter(self, text: str, normal: str) -> None:
        assert normalise(text) == normal

    @given(spellings)
    def test_it_is_its_own_normal_form(self, text: str) -> None:
        assert normalise(normalise(text)) == normalise(text)


class TestMigProfiles:
    def test_a_profile_of_a_family_narrows_it_to_the_products_that_have_it(self) -> None:
        family = resolve_gpu("A100 1g.5gb", GPUS)
        assert (family.sku, family.memory_gb) == ("A100-MIG-1g.5gb", 40)

    def test_a_profile_is_accepted_where_memory_is_not_known(self) -> None:
        unknown = gpu("X1", mig_capable=True)
        assert mig_profiles(unknown) == ()
        profile, _ = split_profile("x1 mig 1g.99gb")
        assert profile is not None
        assert has_mig_profile(profile, unknown)

    def test_a_neighbours_profile_is_refused_by_name(self) -> None:
        with pytest.raises(BadInput, match=r"1g\.12gb is a profile of H100-SXM5-94GB"):
            resolve_gpu("NVIDIA H100 PCIe MIG 1g.12gb", GPUS)


class TestFamilies:
    def test_fields_that_differ_are_not_known(self) -> None:
        family = resolve_gpu("X1", table(gpu("X1-A", memory_gb=40), gpu("X1-B", memory_gb=80)))
        assert (family.name, family.memory_gb, family.segment) == ("X1", None, "datacenter")

    def test_every_brand_of_its_members_must_hold(self) -> None:
        members = gpu("X1-A", brands=("tesla",)), gpu("X1-B", brands=("nvidia", "tesla"))
        assert resolve_gpu("X1", table(*members)).brands == ("tesla", "nvidia")

    @pytest.mark.parametrize(
        "difference",
        [{"capability": (8, 0)}, {"segment": "workstation"}, {"first_branch": 570},
         {"last_branch": 580}],
    )  # fmt: skip
    def test_products_whose_facts_differ_are_no_family(self, difference: dict[str, Any]) -> None:
        with pytest.raises(BadInput, match=r"write one of X1-A .*, X1-B"):
            resolve_gpu("X1", table(gpu("X1-A"), gpu("X1-B", **difference)))

    def test_products_that_share_only_a_label_are_no_family(self) -> None:
        with pytest.raises(BadInput, match="several products"):
            resolve_gpu("Ada", table(gpu("X1-Ada"), gpu("X2-Ada")))

    def test_the_product_that_others_are_variants_of_wins(self) -> None:
        known = table(gpu("GeForce-RTX-9"), gpu("GeForce-RTX-9-Ti"), gpu("GeForce-RTX-9-Laptop"))
        assert resolve_gpu("RTX 9", known).name == "GeForce-RTX-9"

    @pytest.mark.parametrize("family", ["A100", "A100-80GB", "H100", "V100-16GB", "Orin"])
    def test_its_name_resolves_to_itself(self, family: str) -> None:
        assert resolve_gpu(resolve_gpu(family, GPUS).name, GPUS).name == family


class TestWords:
    @pytest.mark.parametrize(
        ("text", "name"),
        [("L4", "L4"), ("L40", "L40"), ("A10", "A10"), ("T4", "T4"), ("H20", "H20"), ("A2", "A2"),
         ("RTX 4070", "GeForce-RTX-4070"), ("P4", "P4"), ("M4", "M4"), ("GB10", "GB10")],
    )  # fmt: skip
    def test_a_word_is_not_the_beginning_of_another(self, text: str, name: str) -> None:
        assert resolve_gpu(text, GPUS).name == name

    @pytest.mark.parametrize("text", ["GTX 750", "RTX 4050", "RTX A3000", "MX570 Laptop"])
    def test_a_variant_is_never_taken_for_the_product_that_the_facts_lack(self, text: str) -> None:
        with pytest.raises(BadInput, match="did you mean"):
            resolve_gpu(text, GPUS)

    def test_memory_may_be_stated_and_must_be_right(self) -> None:
        assert resolve_gpu("L4 24GB", GPUS).name == "L4"
        with pytest.raises(BadInput, match="did you mean L4"):
            resolve_gpu("L4 48GB", GPUS)

    @given(st.permutations(["a100", "80GB", "pcie"]))
    def test_their_order_does_not_matter(self, words: list[str]) -> None:
        assert resolve_gpu(" ".join(words), GPUS).name == "A100-PCIe-80GB"


class TestCapabilities:
    def test_a_capability_is_not_a_product(self) -> None:
        found = resolve_gpu("cc 8.7", GPUS)
        assert (found.name, found.capability, found.product) == ("sm_87", (8, 7), False)
        assert (found.segment, found.first_branch) == (None, None)

    def test_its_architecture_is_told_only_where_products_agree(self) -> None:
        known = table(gpu("X1", architecture="Hopper"), gpu("X2", architecture="Other"))
        assert resolve_gpu("sm_90", known).architecture is None
        assert resolve_gpu("9.0", table(gpu("X1", architecture="Hopper"))).architecture == "Hopper"

    @pytest.mark.parametrize("text", ["sm_90a", "9.0a", "compute_100f"])
    def test_a_target_of_code_is_refused(self, text: str) -> None:
        with pytest.raises(BadInput, match="target of code"):
            resolve_gpu(text, GPUS)


class TestRefusals:
    @given(spellings)
    def test_a_text_names_a_gpu_or_is_bad_input(self, text: str) -> None:
        answer = answered(text)
        if isinstance(answer, BadInput):
            assert (answer.field, answer.value) == ("gpu", text)
            assert answer.hint
        else:
            assert resolve_gpu(answer.sku, GPUS).sku == answer.sku

    def test_a_long_text_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(BadInput) as caught:
            resolve_gpu("a100 " * 1000, GPUS)
        assert len(caught.value.detail) < 200

    def test_nothing_similar_gives_the_way_out_only(self) -> None:
        with pytest.raises(BadInput) as caught:
            resolve_gpu("Voodoo 5", GPUS)
        assert caught.value.hint == "give its compute capability, like gpu=sm_90"

    @pytest.mark.parametrize(
        ("text", "vendor"),
        [
            ("Instinct MI300X", "AMD"),
            ("AMD Radeon PRO W7900", "AMD"),
            ("mi250", "AMD"),
            ("gfx90a", "AMD"),
            ("Intel Arc B580", "Intel"),
            ("Gaudi2", "Intel"),
        ],
    )
    def test_gpus_of_others_are_named_as_such(self, text: str, vendor: str) -> None:
        with pytest.raises(BadInput, match=f"of {vendor}: compatgate supports only NVIDIA"):
            resolve_gpu(text, GPUS)


class TestTables:
    def test_each_table_has_its_own_answers(self) -> None:
        one, other = table(gpu("X1", memory_gb=1)), table(gpu("X1", memory_gb=2))
        assert [resolve_gpu("x1", t).memory_gb for t in (one, other, one)] == [1, 2, 1]

    def test_aliases_of_a_table_are_looked_up(self) -> None:
        assert resolve_gpu("Some-Name", table(gpu("X1"), some_name="X1")).name == "X1"

    def test_two_names_of_one_normal_form_break_nothing(self) -> None:
        assert resolve_gpu("x1 80gb", table(gpu("X1-80GB"), gpu("X1 80GB"))).name == "X1 80GB"

    def test_the_import_brings_no_slow_module(self) -> None:
        code = "import sys, compatgate.core.gpus; print(*sys.modules)"
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert not {"difflib", "yaml", "packaging.version"} & set(run.stdout.split())


words = st.lists(st.sampled_from([*{p.lower() for p in PIECES}, "a100x", "1234"]), max_size=4)


@given(words)
def test_skus_are_sought_by_words_that_names_have(wanted: list[str]) -> None:
    index = index_of(GPUS)
    found = {gpu.name for gpu in index.matching(wanted)}
    for name in GPUS.gpus:
        if set(wanted) <= index.words[name] and not all(map(is_variant, wanted)):
            other = index.words[name] - {*wanted}
            assert (name in found) == (
                not any(w in index.variants and not is_memory(w) for w in other)
            )


def test_a_name_with_an_unknown_word_is_compared_with_no_sku(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GpuIndex, "_has", lambda *_: pytest.fail("a SKU was compared"))
    with pytest.raises(BadInput, match="is not a GPU that the facts know"):
        resolve_gpu("A100-98765", GPUS)
