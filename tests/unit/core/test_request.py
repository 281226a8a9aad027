"""A question to the gate: what is read, and how every mistake names its place."""

import pytest

from compatgate.core.request import change_pool, parse_pool, parse_request
from compatgate.errors import BadInput

POOL = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB", "os": "linux"}
STACK = {"cuda": "12.4", "arch": ["sm_80"]}


def test_a_question_about_a_described_pool_is_read(gpus):
    request = parse_request(
        {"pool": {**POOL, "name": "a100", "cpu": "aarch64", "count": 512}, "stack": STACK}, gpus
    )
    pool = request.pool
    assert request.target is None
    assert (pool.name, pool.gpu.sku, str(pool.driver)) == ("a100", "A100-SXM4-80GB", "535.104.05")
    assert (pool.os, pool.cpu, pool.count) == ("linux", "aarch64", 512)
    assert request.stack.to_json() == STACK


def test_a_question_about_a_target_is_read(gpus):
    request = parse_request({"target": "prod-a100", "stack": STACK}, gpus)
    assert request.target == "prod-a100"
    assert request.pool is None


def test_a_pool_is_on_linux_x86_unless_it_says_otherwise(gpus):
    pool = parse_pool({"driver": "535.104.05", "gpu": "L4"}, gpus)
    assert (pool.name, pool.os, pool.cpu, pool.count) == ("pool", "linux", "x86_64", 1)


def test_the_driver_or_the_gpu_may_be_left_open(gpus):
    assert parse_pool({"gpu": "L4"}, gpus).driver is None
    assert parse_pool({"driver": "535.104.05"}, gpus).gpu is None


def test_a_gpu_may_be_a_bare_capability(gpus):
    pool = parse_pool({"gpu": "8.7"}, gpus)
    assert pool.gpu.capability == (8, 7)
    assert not pool.gpu.product


def test_the_image_belongs_to_the_stack(gpus):
    request = parse_request({"target": "t", "stack": STACK, "image": "app@sha256:abc"}, gpus)
    assert request.stack.image == "app@sha256:abc"


def test_set_changes_the_pool_and_the_stack(gpus):
    request = parse_request(
        {
            "pool": POOL,
            "stack": STACK,
            "set": {"driver": "550.54.15", "gpu": "L4", "cudnn": "9.1.0", "os": "wsl"},
        },
        gpus,
    )
    assert str(request.pool.driver) == "550.54.15"
    assert request.pool.gpu.sku == "L4"
    assert request.pool.os == "wsl"
    assert request.stack.to_json() == {"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80"]}


@pytest.mark.parametrize(
    ("spelled", "name"), [("Windows 11", "windows"), ("win10", "windows"), ("WSL2", "wsl")]
)
def test_the_release_of_a_system_does_not_count(gpus, spelled, name):
    assert parse_pool({**POOL, "os": spelled}, gpus).os == name


def test_set_of_an_alias_of_the_driver_changes_the_driver(gpus):
    body = {"pool": POOL, "stack": STACK, "set": {"nvidia-driver": "550.54.15"}}
    assert str(parse_request(body, gpus).pool.driver) == "550.54.15"


def test_set_keeps_what_is_to_change_in_a_target(gpus):
    request = parse_request({"target": "t", "stack": STACK, "set": {"driver": "550.54.15"}}, gpus)
    assert request.changes == {"driver": "550.54.15"}


def test_changing_nothing_leaves_the_pool_as_it_was(gpus):
    pool = parse_pool(POOL, gpus)
    assert change_pool(pool, {"cudnn": "9.1.0"}, gpus) == pool


def test_a_null_in_set_for_a_pool_property_changes_nothing_or_is_refused(gpus):
    pool = parse_pool(POOL, gpus)
    assert change_pool(pool, {"driver": None}, gpus) == pool


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        (None, None, "must be a JSON object"),
        ([], None, "must be a JSON object"),
        ("cuda=12.4", None, "must be a JSON object"),
        ({}, "target", "name either a target or a pool"),
        ({"target": "t", "pool": POOL, "stack": STACK}, "target", "name either a target or a pool"),
        ({"target": 7, "stack": STACK}, "target", "must be the name of a target"),
        ({"target": "", "stack": STACK}, "target", "must be the name of a target"),
        ({"target": "t"}, "stack", "the stack is missing"),
        ({"target": "t", "image": "app:1"}, "stack", "check --image"),
        ({"target": "t", "stack": STACK, "image": 7}, "image", "must be an image reference"),
        ({"target": "t", "stack": STACK, "image": ""}, "image", "must be an image reference"),
        ({"target": "t", "stack": STACK, "sets": {}}, "sets", "unknown key"),
        ({"target": "t", "stack": "cuda=12.4"}, "stack", "must be a JSON object"),
        ({"target": "t", "stack": {}}, "stack", "the stack is empty"),
        ({"target": "t", "stack": {"cuda": "12"}}, "stack.cuda", "with its minor"),
        ({"target": "t", "stack": {"cudn": "9.1.0"}}, "stack.cudn", "did you mean cudnn"),
        ({"target": "t", "stack": {"arch": ["x"]}}, "stack.arch", "not a GPU architecture"),
        ({"target": "t", "stack": {"driver": "535.104.05"}}, "stack.driver", "pool.driver"),
        ({"target": "t", "stack": {7: "x"}}, "stack", "a key must be text"),
        ({"pool": "A100", "stack": STACK}, "pool", "must be a JSON object"),
        ({"pool": {}, "stack": STACK}, "pool", "the pool is empty"),
        ({"pool": {"os": "linux"}, "stack": STACK}, "pool", "state driver and gpu of the pool"),
        ({"pool": {**POOL, "gpus": 8}, "stack": STACK}, "pool.gpus", "unknown key"),
        ({"pool": {**POOL, "driver": "535"}, "stack": STACK}, "pool.driver", "a branch is not"),
        ({"pool": {**POOL, "driver": "12.4"}, "stack": STACK}, "pool.driver", "a CUDA version?"),
        (
            {"pool": POOL, "stack": STACK, "set": {"driver": "13.0"}},
            "set.driver",
            "a CUDA version?",
        ),
        ({"pool": {**POOL, "driver": 535.104}, "stack": STACK}, "pool.driver", "must be text"),
        ({"pool": {**POOL, "gpu": "A1000000"}, "stack": STACK}, "pool.gpu", "A1000000"),
        ({"pool": {**POOL, "gpu": 8.0}, "stack": STACK}, "pool.gpu", "must be text"),
        ({"pool": {**POOL, "os": "beos"}, "stack": STACK}, "pool.os", "linux, windows, wsl"),
        ({"pool": {**POOL, "os": "macos14"}, "stack": STACK}, "pool.os", "'macos14' is not known"),
        ({"pool": {**POOL, "os": 1}, "stack": STACK}, "pool.os", "must be text"),
        ({"pool": {**POOL, "cpu": "riscv"}, "stack": STACK}, "pool.cpu", "x86_64, aarch64"),
        ({"pool": {**POOL, "count": "8"}, "stack": STACK}, "pool.count", "number of nodes"),
        ({"pool": {**POOL, "count": -1}, "stack": STACK}, "pool.count", "number of nodes"),
        ({"pool": {**POOL, "count": True}, "stack": STACK}, "pool.count", "number of nodes"),
        ({"pool": {**POOL, "name": 7}, "stack": STACK}, "pool.name", "must be text"),
        ({"pool": POOL, "stack": STACK, "set": []}, "set", "must be a JSON object"),
        ({"pool": POOL, "stack": STACK, "set": {"driver": "x"}}, "set.driver", "not a version"),
        ({"pool": POOL, "stack": STACK, "set": {"gpu": "zzz"}}, "set.gpu", "zzz"),
        ({"pool": POOL, "stack": STACK, "set": {"os": "beos"}}, "set.os", "linux"),
        ({"pool": POOL, "stack": STACK, "set": {"cudn": "9.1"}}, "set.cudn", "did you mean cudnn"),
        ({"pool": POOL, "stack": STACK, "set": {"cuda": "12"}}, "set.cuda", "with its minor"),
        ({"pool": POOL, "stack": STACK, "set": {"cuda": 12.4}}, "set.cuda", "must be text"),
        ({"pool": POOL, "stack": STACK, "set": "driver=550.54.15"}, "set", "must be a JSON object"),
        ({"pool": POOL, "stack": STACK, "set": 0}, "set", "must be a JSON object"),
    ],
)
def test_a_malformed_question_is_refused_and_names_its_path(body, field, says, gpus):
    with pytest.raises(BadInput) as caught:
        parse_request(body, gpus)
    assert caught.value.field == field
    assert says in caught.value.detail


def test_a_misspelt_key_lists_the_known_ones(gpus):
    with pytest.raises(BadInput) as caught:
        parse_request({"target": "t", "stak": STACK}, gpus)
    assert caught.value.field == "stak"
    assert "stack" in caught.value.hint


@pytest.mark.parametrize(
    ("pool", "cpu"),
    [
        ({"gpu": "GH200"}, "aarch64"),
        ({"gpu": "NVIDIA GB200"}, "aarch64"),
        ({"gpu": "GB10"}, "aarch64"),
        ({"gpu": "Jetson-T5000-Thor"}, "aarch64"),
        ({"gpu": "8.7"}, "aarch64"),
        ({"gpu": "9.0"}, "x86_64"),
        ({"gpu": "H100"}, "x86_64"),
        ({"gpu": "H100", "cpu": "aarch64"}, "aarch64"),
        ({"gpu": "GH200", "cpu": "x86_64"}, "x86_64"),
    ],
)
def test_the_processor_follows_the_gpu_unless_it_is_stated(gpus, pool, cpu):
    assert parse_pool({"driver": "580.82.07", **pool}, gpus).cpu == cpu


def test_another_gpu_brings_its_processor_and_takes_it_away(gpus):
    x86, grace = (parse_pool({"gpu": gpu}, gpus) for gpu in ("H100", "GH200"))
    arm = parse_pool({"gpu": "H100", "cpu": "aarch64"}, gpus)
    assert change_pool(x86, {"gpu": "GB200"}, gpus).cpu == "aarch64"
    assert change_pool(grace, {"gpu": "H100"}, gpus).cpu == "x86_64"
    assert change_pool(arm, {"gpu": "L4"}, gpus).cpu == "aarch64"
    assert change_pool(x86, {"gpu": "GB200", "cpu": "x86_64"}, gpus).cpu == "x86_64"
