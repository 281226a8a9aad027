"""The operator's list of images under test: what a pattern means, and what slips past none."""

from __future__ import annotations

import pytest

from compatgate.canary.allowed_images import (
    ENVIRONMENT,
    EVERY_IMAGE,
    AllowedImages,
    parse_patterns,
    read_allowed_images,
)
from compatgate.errors import BadInput

DIGEST = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("registry.example/team/*", "registry.example/team/app:1.5"),
        ("registry.example/team/*", "Registry.Example/team/deep/app"),
        ("Registry.example/team/*", "docker://registry.example/team/app"),
        ("registry.example/team/app", f"registry.example/team/app:1@{DIGEST}"),
        ("registry.example/team/app:1.*", "registry.example/team/app:1.5"),
        (f"registry.example/team/app@{DIGEST}", f"registry.example/team/app:1@{DIGEST}"),
        ("registry.example:5000/*", "registry.example:5000/app"),
        ("docker.io/library/ubuntu:*", "ubuntu"),
        ("docker.io/ubuntu", "ubuntu:24.04"),
        ("index.docker.io/ubuntu:*", "docker.io/library/ubuntu:24.04"),
        ("docker.io/*", "pytorch/pytorch:2.4.1"),
        ("localhost/*", "localhost/app"),
        (DIGEST, DIGEST),
        ("*", "anything/at:all"),
        ("*", OTHER),
    ],
)
def test_a_pattern_allows(pattern: str, image: str) -> None:
    AllowedImages(parse_patterns([pattern], "--image")).check(image)


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("registry.example/team/*", "registry.example/teams/app"),
        ("registry.example/team/*", "evil.example/registry.example/team/app"),
        ("registry.example/team/*", "registry.example:5000/team/app"),
        ("registry.example/team/*", "team/app"),
        # A tag beside a digest names nothing: the digest alone is what runs.
        ("registry.example/team/app:1.*", f"registry.example/team/app:1.5@{OTHER}"),
        (f"registry.example/team/app@{DIGEST}", f"registry.example/team/app@{OTHER}"),
        ("docker.io/library/ubuntu:*", "ubuntu.example/library/ubuntu:1"),
        ("docker.io/library/ubuntu:*", "someone/ubuntu:1"),
        # An image of the engine, by its id, is in no registry.
        ("docker.io/*", DIGEST),
        ("docker.io/library/*", DIGEST),
    ],
)
def test_what_no_pattern_names_is_refused_with_the_list_and_how_to_extend_it(
    pattern: str, image: str
) -> None:
    allowed = read_allowed_images([pattern], "worker --image", otherwise=())
    with pytest.raises(BadInput) as error:
        allowed.check(image)
    assert (error.value.field, error.value.value) == ("image", image)
    assert allowed.patterns[0] in error.value.problem
    assert f"worker --image PATTERN or {ENVIRONMENT}" in error.value.hint


def test_an_allowed_image_is_run_by_its_full_name() -> None:
    allowed = AllowedImages(("docker.io/*",))
    # Docker takes a short name of hexadecimal digits for the id of an image that it has.
    assert allowed.check("deadbeef") == "docker.io/library/deadbeef:latest"
    assert allowed.check(f"a/b:1@{DIGEST}") == f"docker.io/a/b@{DIGEST}"
    assert EVERY_IMAGE.check("deadbeef") == "deadbeef"
    assert AllowedImages(()).check(None) is None


@pytest.mark.parametrize(
    "pattern",
    ["ubuntu", "team/*", "*/app", "*.example/team/*", "regis?ry.example/x", "registry.example",
     "registry.example/", "/x", "[::1/x", "**"],
)  # fmt: skip
def test_a_pattern_that_names_no_registry_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="is not an image pattern") as error:
        parse_patterns([pattern], "--image")
    assert error.value.field == "--image"


def test_the_option_wins_over_the_environment_and_both_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(*texts: str) -> tuple[str, ...]:
        return read_allowed_images(texts, "worker --image", otherwise=("*",)).patterns

    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert found() == ("*",)
    monkeypatch.setenv(ENVIRONMENT, " a.example/*, b.example/* ")
    assert found() == ("a.example/*", "b.example/*")
    assert found("c.example/*") == ("c.example/*",)
    assert found("none") == ()
    monkeypatch.setenv(ENVIRONMENT, "none")
    assert found() == ()
    monkeypatch.setenv(ENVIRONMENT, "ubuntu")
    with pytest.raises(BadInput) as error:
        found()
    assert error.value.field == ENVIRONMENT
