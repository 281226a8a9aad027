"""Every toolkit against every compute capability."""

from __future__ import annotations


def code(kind, capability):
    return f"{kind}_{capability.replace('.', '')}"


def each_pair(walk):
    """Every toolkit with every capability: whether it lists it, and whether it dropped it."""
    document = walk.read("cuda_arch_support")
    for toolkit in document["toolkits"]:
        series = walk.numbers(toolkit["cuda"])
        for fact in document["compute_capabilities"]:
            device, last = fact["compute_capability"], fact["last_toolkit"]
            dropped = bool(last) and series > walk.numbers(last)
            yield toolkit, device, device in toolkit["sass_all"], dropped


def test_each_toolkit_targets_exactly_the_capabilities_that_it_lists(walk):
    for toolkit, device, listed, _ in each_pair(walk):
        for arch in ([], [code("sm", device)], [code("compute", device)]):
            stack = {"cuda": toolkit["cuda"], "arch": arch}
            walk.expect("pass" if listed else "fail", "CG203", stack, gpu=device)
    walk.done(at_least=2000)


def test_older_code_of_a_toolkit_that_does_not_know_the_gpu_yet_runs_with_a_warning(walk):
    for toolkit, device, listed, dropped in each_pair(walk):
        lowest = toolkit["sass_all"][0]
        if not listed and walk.numbers(lowest) <= walk.numbers(device):
            stack = {"cuda": toolkit["cuda"], "arch": [code("compute", lowest)]}
            walk.expect("fail" if dropped else "warn", "CG203", stack, gpu=device)
    walk.done(at_least=200)


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
    facts = walk.read("cuda_arch_support")["compute_capabilities"]
    known = {fact["compute_capability"] for fact in facts}
    assert {gpu["compute_capability"] for gpu in walk.read("gpus")["gpus"]} <= known
