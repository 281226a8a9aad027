"""A GPU against what the workload needs, asked with the pinned facts."""

from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.needs import parse_needs


def finding(verdict, rule):
    return next((one for one in verdict.findings if one.rule == rule), None)


def test_fp8_fails_on_an_a100_with_the_reason_and_gpus_that_can(ask):
    pool = "driver=580.95.05,gpu=A100-SXM4-80GB"
    refused = finding(ask(pool, "cuda=12.4,arch=sm_80,needs=fp8"), "CG210")
    assert refused.outcome == "fail"
    assert "A100-SXM4-80GB (8.0) does not compute in FP8" in refused.message
    assert "8.9, 9.0" in refused.need
    assert refused.fixes
    for fix in refused.fixes:
        mended = ask(pool, "cuda=12.4,arch=sm_80,needs=fp8", changes=fix.set)
        assert finding(mended, "CG210") is None
        assert mended.verdict == "pass"


def test_the_first_fix_is_another_pool_of_the_target(ask):
    pools = ["driver=535.104.05,gpu=A100-SXM4-80GB", "driver=580.95.05,gpu=H100-SXM5-80GB"]
    verdict = ask(pools, "cuda=12.4,arch=sm_80+sm_90,needs=fp8", target="prod")
    refused = finding(verdict, "CG210")
    assert refused.fixes[0].set == {"gpu": "H100-SXM5-80GB", "driver": "580.95.05"}
    assert len(refused.pools) == 1


def test_code_that_the_other_gpu_lacks_is_part_of_the_fix(ask):
    refused = finding(ask("driver=580.95.05,gpu=T4", "cuda=12.4,arch=sm_75,needs=bf16"), "CG210")
    assert refused.fixes
    assert all("arch" in fix.set for fix in refused.fixes)


def test_a_larger_slice_of_the_same_gpu_comes_first(ask):
    pool = "driver=580.95.05,gpu=A100-SXM4-80GB-MIG-1g.10gb"
    refused = finding(ask(pool, "cuda=12.4,arch=sm_80,needs=20GB"), "CG211")
    assert refused.outcome == "fail"
    assert refused.fixes[0].set == {"gpu": "A100-SXM4-80GB-MIG-3g.40gb"}


def test_memory_between_its_bounds_or_not_known_is_unknown(ask):
    stack = "cuda=12.4,arch=sm_90,needs="
    h100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
    assert finding(ask(h100, f"{stack}80GB"), "CG211") is None
    between = finding(ask(h100, f"{stack}80GiB"), "CG211")
    assert between.outcome == "unknown"
    assert "memory.total" in between.message
    bare = finding(ask("driver=580.95.05,gpu=sm_90", f"{stack}1GB"), "CG211")
    assert bare.outcome == "unknown"
    open_gpu = ask({"driver": "580.95.05"}, f"{stack}1GB+fp8")
    assert finding(open_gpu, "CG211").outcome == "unknown"
    assert finding(open_gpu, "CG210").outcome == "unknown"


def test_a_family_has_the_least_and_the_most_of_its_members(ask):
    stack, pool = "cuda=12.4,arch=sm_80,needs=", "driver=580.95.05,gpu=A100-SXM4"
    assert finding(ask(pool, f"{stack}40GB"), "CG211") is None
    assert finding(ask(pool, f"{stack}60GiB"), "CG211").outcome == "unknown"
    assert finding(ask(pool, f"{stack}90GiB"), "CG211").outcome == "fail"


def test_the_entry_that_decides_states_needs_for_the_stack(ask):
    entry = Entry(
        name="llm",
        targets=("*",),
        components={"cuda": parse_constraint("cuda", "12.4.*")},
        status="blessed",
        needs=parse_needs("fp8+60GiB"),
    )
    matrix = Matrix(entries=EntryIndex([entry]))
    pool = "driver=580.95.05,gpu=A100-SXM4-40GB"
    verdict = ask(pool, "cuda=12.4,arch=sm_80", target="prod", matrix=matrix)
    assert finding(verdict, "CG210").outcome == "fail"
    assert finding(verdict, "CG211").outcome == "fail"
    other = ask(pool, "cuda=12.2,arch=sm_80", target="prod", matrix=matrix)
    assert finding(other, "CG210") is None


def test_nothing_is_asked_without_needs(ask):
    verdict = ask("driver=580.95.05,gpu=T4", "cuda=12.4,arch=sm_75")
    assert {"CG210", "CG211"} <= set(verdict.checked.not_applicable)
