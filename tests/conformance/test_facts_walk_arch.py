"""Every toolkit against every compute capability."""

from __future__ import annotations


def test_each_toolkit_targets_exactly_the_capabilities_that_it_lists(walk):
    document = walk.read("cuda_arch_support")
    for toolkit in document["toolkits"]:
        series = walk.numbers(toolkit["cuda"])
        for fact in document["compute_capabilities"]:
            device = fact["compute_capability"]
            listed = device in toolkit["sass_all"]
            dropped = fact["last_toolkit"] and series > walk.numbers(fact["last_toolkit"])
            own = {"cuda": toolkit["cuda"], "arch": [f"sm_{device.replace('.', '')}"]}
            bare = {"cuda": toolkit["cuda"], "arch": []}
            walk.expect("pass" if listed else "fail", "CG203", bare, gpu=device)
            runs = "fail" if dropped else "warn"
            walk.expect("pass" if listed else runs, "CG203", own, gpu=device)
    walk.done(at_least=1000)


def test_first_and_last_toolkits_agree_with_the_lists(walk):
    document = walk.read("cuda_arch_support")
    series = {t["cuda"]: walk.numbers(t["cuda"]) for t in document["toolkits"]}
    for fact in document["compute_capabilities"]:
        device = fact["compute_capability"]
        listing = [series[t["cuda"]] for t in document["toolkits"] if device in t["sass_all"]]
        if not listing:
            continue
        assert min(listing) >= walk.numbers(fact["first_toolkit"]), device
        if min(listing) > min(series.values()):
            assert min(listing) == walk.numbers(fact["first_toolkit"]), device
        last = fact["last_toolkit"]
        assert max(listing) == (walk.numbers(last) if last else max(series.values())), device


def test_every_toolkit_with_a_driver_has_its_architectures(walk):
    known = {t["cuda"] for t in walk.read("cuda_arch_support")["toolkits"]}
    assert {r["series"] for r in walk.read("cuda_driver")["releases"]} <= known


def test_every_product_has_a_capability_that_the_facts_know(walk):
    known = {
        c["compute_capability"] for c in walk.read("cuda_arch_support")["compute_capabilities"]
    }
    assert {gpu["compute_capability"] for gpu in walk.read("gpus")["gpus"]} <= known
