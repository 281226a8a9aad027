"""Reading a stack: its JSON and text forms, what is refused and why, and "what if" changes."""

import pytest

from compatgate.core.stack import complete_stack, parse_stack, parse_stack_text, update_stack
from compatgate.errors import BadInput

FULL = {
    "cuda": "12.4",
    "cudnn": "9.1.0",
    "torch": "2.4.1+cu124",
    "arch": ["sm_80", "compute_90"],
    "cuda-compat": "12.8",
    "require": ["cuda>=12.4"],
    "disable-require": True,
}


def names(stack):
    return [code.name for code in stack.arch]


def test_the_json_form_is_read_whole():
    stack = parse_stack(FULL, image="registry.example/app@sha256:abc")
    assert {name: str(version) for name, version in stack.components.items()} == {
        "cuda": "12.4",
        "cudnn": "9.1.0",
        "torch": "2.4.1+cu124",
    }
    assert names(stack) == ["sm_80", "compute_90"]
    assert stack.cuda_compat.major_minor == (12, 8)
    assert stack.require == ("cuda>=12.4",)
    assert stack.disable_require is True
    assert stack.image == "registry.example/app@sha256:abc"


def test_a_stack_is_shown_as_it_was_given():
    assert parse_stack(FULL).to_json() == FULL


def test_components_are_shown_in_one_order_whatever_the_order_given():
    backwards = dict(reversed(FULL.items()))
    assert list(parse_stack(backwards).to_json()) == list(parse_stack(FULL).to_json())


def test_what_is_not_stated_is_not_shown():
    assert parse_stack({"cuda": "12.4"}).to_json() == {"cuda": "12.4"}
    assert parse_stack({"cuda": "12.4"}).arch is None


def test_no_gpu_code_is_another_statement_than_no_word_of_it():
    assert parse_stack({"cuda": "12.4", "arch": []}).arch == ()
    assert parse_stack({"cuda": "12.4", "arch": []}).to_json()["arch"] == []


def test_an_alias_counts_as_its_component():
    stack = parse_stack({"PyTorch": "2.4.1", "libcudnn9": "9.1.0", "cuda_toolkit": "12.4"})
    assert set(stack.components) == {"torch", "cudnn", "cuda"}


def test_the_cuda_in_an_alias_is_kept_in_the_json_form():
    stack = parse_stack({"nvidia-cudnn-cu11": "9.1.0.70"})
    assert stack.get("cudnn").cuda == (11,)
    again = parse_stack(stack.to_json())
    assert again.get("cudnn").cuda == (11,)


def test_the_cuda_in_an_alias_survives_a_change_of_something_else():
    changed = update_stack(parse_stack({"nvidia-cudnn-cu11": "9.1.0"}), {"python": "3.11"})
    assert changed.get("cudnn").cuda == (11,)


def test_a_change_does_not_read_again_what_it_leaves_as_it_is():
    """The CUDA in a name lengthens the text to what is no version of CUDA by itself."""
    stack = parse_stack({"nvidia-cuda-runtime-cu12": "12.4.127"})
    changed = update_stack(stack, {"python": "3.11"})
    assert changed.get("cuda").major_minor == (12, 4)


def test_a_number_is_a_version_where_nvidia_writes_integers():
    stack = parse_stack({"cuda": 12040, "cudnn": 90100, "nccl": 22105})
    assert stack.get("cuda").major_minor == (12, 4)
    assert stack.get("cudnn").at(3) == (9, 1, 0)
    assert stack.get("nccl").at(3) == (2, 21, 5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["sm_80", "sm_90"], ["sm_80", "sm_90"]),
        (["8.0", "9.0+PTX"], ["sm_80", "sm_90", "compute_90"]),
        ("sm_80+sm_90+compute_90", ["sm_80", "sm_90", "compute_90"]),
        ("8.0;8.6;9.0+PTX", ["sm_80", "sm_86", "sm_90", "compute_90"]),
        ("8.0 8.6 9.0+PTX", ["sm_80", "sm_86", "sm_90", "compute_90"]),
        ("8.0+PTX+sm_90a", ["sm_80", "compute_80", "sm_90a"]),
        ("sm_90a", ["sm_90a"]),
        (["sm_80", "sm_80", "8.0"], ["sm_80"]),
        ("", []),
    ],
)
def test_gpu_code_is_read_from_a_list_or_a_text(value, expected):
    assert names(parse_stack({"cuda": "12.4", "arch": value})) == expected


def test_a_requirement_may_be_one_text_or_a_list():
    assert parse_stack({"require": "cuda>=12.4"}).require == ("cuda>=12.4",)
    assert parse_stack({"require": ["cuda>=12.4", "brand=tesla"]}).require == (
        "cuda>=12.4",
        "brand=tesla",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", True), ("true", True), ("T", True), ("0", False), ("false", False), (False, False)],
)
def test_disable_require_is_read_as_the_runtime_reads_it(value, expected):
    assert parse_stack({"cuda": "12.4", "disable_require": value}).disable_require is expected


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({}, None, "the stack is empty"),
        ({"require": []}, None, "the stack is empty"),
        ({"disable-require": False}, None, "the stack is empty"),
        ({"driver": "535.104.05"}, "driver", "belongs to the pool"),
        ({"nvidia-driver": "535.104.05", "cuda": "12.4"}, "nvidia-driver", "belongs to the pool"),
        ({"cudn": "9.1.0"}, "cudn", "did you mean cudnn"),
        ({"archs": ["sm_80"]}, "archs", "did you mean arch"),
        ({"cuda-compatt": "12.8"}, "cuda-compatt", "did you mean cuda-compat"),
        ({"requires": ["cuda>=12"]}, "requires", "require"),
        ({"disable-requires": True}, "disable-requires", "disable-require"),
        ({"torch": "2.4.1", "pytorch": "2.5.0"}, "pytorch", "torch is stated twice"),
        ({"cuda": "12.4", "cuda-toolkit": "12.4"}, "cuda-toolkit", "cuda is stated twice"),
        ({"cuda": "12"}, "cuda", "write 12.x with its minor"),
        ({"cuda": 12.4}, "cuda", "a version must be text"),
        ({"cuda": True}, "cuda", "a version must be text"),
        ({"cuda": None}, "cuda", "a version must be text"),
        ({"cuda": ["12.4"]}, "cuda", "a version must be text"),
        ({"cuda": {}}, "cuda", "a version must be text"),
        ({"torch": "latest"}, "torch", "not a version"),
        ({"arch": 80}, "arch", "must be a list of architectures"),
        ({"arch": None}, "arch", "must be a list of architectures"),
        ({"arch": [80]}, "arch", "must be text"),
        ({"arch": ["sm_80", "ampere"]}, "arch", "'ampere' is not a GPU architecture"),
        ({"cuda-compat": "12"}, "cuda-compat", "write 12.x with its minor"),
        ({"cuda-compat": 12.8}, "cuda-compat", "a version must be text"),
        ({"cuda-compat": True}, "cuda-compat", "a version must be text"),
        ({"require": 7}, "require", "must be a list of expressions"),
        ({"require": [7]}, "require", "must be a list of expressions"),
        ({"disable-require": "perhaps"}, "disable-require", "must be true or false"),
        ({"disable-require": 1}, "disable-require", "must be true or false"),
        ({7: "12.4"}, "7", "a key must be text"),
    ],
)
def test_what_is_malformed_is_refused_and_names_its_key(body, field, says):
    with pytest.raises(BadInput) as caught:
        parse_stack(body)
    assert caught.value.field == field
    assert says in caught.value.detail


def test_an_alias_names_the_key_that_the_user_wrote_when_its_version_is_malformed():
    with pytest.raises(BadInput) as caught:
        parse_stack({"pytorch": "latest"})
    assert caught.value.field == "pytorch"


def test_a_decimal_number_is_refused_because_it_would_lose_digits():
    with pytest.raises(BadInput, match=r"12\.10 and 12\.1 are not the same number"):
        parse_stack({"cuda": 12.10})


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("cuda=12.4", {"cuda": "12.4"}),
        ("cuda=12.4,cudnn=9.1.0", {"cuda": "12.4", "cudnn": "9.1.0"}),
        (" cuda = 12.4 , torch=2.4.1+cu121 ", {"cuda": "12.4", "torch": "2.4.1+cu121"}),
        ("cuda==12.4", {"cuda": "12.4"}),
        ("cuda=12.4,", {"cuda": "12.4"}),
        ("arch=sm_80+compute_80", {"arch": "sm_80+compute_80"}),
        ("require=cuda>=12.4", {"require": "cuda>=12.4"}),
        ("require=cuda>=12.4 brand=tesla", {"require": "cuda>=12.4 brand=tesla"}),
    ],
)
def test_the_text_form_is_read_into_the_json_form(text, body):
    assert parse_stack_text(text) == body


@pytest.mark.parametrize("text", ["cuda", "cuda=", "=12.4", "cuda=12.4,torch", "cuda=12.4,=,"])
def test_an_item_that_is_not_name_and_version_is_refused(text):
    with pytest.raises(BadInput, match="is not name=version"):
        parse_stack_text(text)


def test_a_name_stated_twice_in_the_text_form_is_refused():
    with pytest.raises(BadInput, match="stated twice"):
        parse_stack_text("cuda=12.4,cuda=12.6")


def test_a_change_sets_adds_and_removes():
    stack = parse_stack(FULL, image="app:1")
    changed = update_stack(
        stack, {"cuda": "12.6", "nccl": "2.21.5", "cudnn": None, "arch": ["sm_90"], "require": None}
    )
    assert changed.to_json() == {
        "cuda": "12.6",
        "nccl": "2.21.5",
        "torch": "2.4.1+cu124",
        "arch": ["sm_90"],
        "cuda-compat": "12.8",
        "disable-require": True,
    }
    assert changed.image == "app:1"


def test_a_change_may_use_any_alias():
    changed = update_stack(parse_stack(FULL), {"pytorch": "2.5.1", "libcudnn9": None})
    assert changed.to_json()["torch"] == "2.5.1"
    assert "cudnn" not in changed.to_json()


def test_no_change_leaves_the_stack_as_it_was():
    stack = parse_stack(FULL, image="app:1")
    assert update_stack(stack, {}) == stack


def test_removing_what_is_not_there_is_no_error():
    assert update_stack(parse_stack({"cuda": "12.4"}), {"cuda-compat": None}).to_json() == {
        "cuda": "12.4"
    }


def test_removing_everything_is_refused():
    with pytest.raises(BadInput, match="the stack is empty"):
        update_stack(parse_stack({"cuda": "12.4"}), {"cuda": None})


def test_a_change_to_what_is_not_a_component_is_refused():
    with pytest.raises(BadInput, match="did you mean cudnn"):
        update_stack(parse_stack({"cuda": "12.4"}), {"cudn": "9.1.0"})


@pytest.mark.parametrize(
    ("body", "jax"),
    [
        ({"jax": "0.5.2", "jaxlib": "0.5.1"}, "0.5.2"),
        ({"jaxlib": "0.4.28+cuda12.cudnn89", "jax": "0.4.28"}, "0.4.28+cuda12.cudnn89"),
        ({"jaxlib": "0.5.1"}, "0.5.1"),
        ({"jax[cuda13]": "0.8.0"}, "0.8.0+cuda13"),
        ({"JAX[cuda11_pip]": "0.4.14", "jaxlib": "0.4.14"}, "0.4.14+cuda11"),
        ({"jax": "0.2.25", "jaxlib": "0.1.74+cuda11.cudnn82"}, "0.1.74+cuda11.cudnn82"),
    ],
)
def test_jaxlib_beside_jax_is_the_same_part_and_its_label_counts(body, jax):
    assert str(parse_stack(body).components["jax"]) == jax


def test_the_label_of_an_extension_says_no_cuda_beside_a_torch():
    extension = {"flash-attn": "2.6.3+cu123torch2.4cxx11abiFALSE"}
    assert "cuda" not in complete_stack(parse_stack({"torch": "2.4.0", **extension})).components
    assert str(complete_stack(parse_stack(extension)).components["cuda"]) == "12.3"
