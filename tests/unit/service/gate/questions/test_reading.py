"""Readings of images for many questions at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.errors import NotFound, RegistryTimeout, Unavailable
from compatgate.service.gate.questions import images
from compatgate.service.gate.questions.images import ImageReader

DIGEST = "sha256:" + "0" * 64
PLATFORM = "linux/amd64"


class Registry:
    """Stands in for `read_image`: answers once the test lets it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = threading.Event()

    def __call__(self, reference: str, **_: object) -> ImageReading:
        self.asked.append(reference)
        self.open.wait(20)
        if "none" in reference:
            raise NotFound("has no such image", field="image", hint="look again")
        return ImageReading(reference, DIGEST, PLATFORM, {"cuda": "12.4"})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    stand_in = Registry()
    monkeypatch.setattr(images, "read_image", stand_in)
    return stand_in


@pytest.fixture
def readings(facts):
    def make(deadline_s: float = 10, at_once: int = 8, waiting: int = 16):
        made = ImageReader(ImageOptions(), [], deadline_s, at_once, waiting)
        return lambda text: made.read(parse_reference(text), PLATFORM, facts)

    return make


def test_questions_about_one_image_wait_for_one_reading(registry, readings) -> None:
    read = readings()
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(read, "r.example/app:1") for _ in range(5)]
        threading.Timer(0.3, registry.open.set).start()
        assert {answer.result().digest for answer in waiting} == {DIGEST}
    assert len(registry.asked) == 1


def test_a_tag_is_read_anew_and_a_digest_is_known(registry, readings) -> None:
    registry.open.set()
    read = readings()
    for reference in ("r.example/app:1", f"r.example/app@{DIGEST}"):
        assert read(reference) == read(reference)
    assert registry.asked == ["r.example/app:1", "r.example/app:1", f"r.example/app@{DIGEST}"]


def test_everybody_who_waits_is_told_the_error_and_nothing_is_kept(registry, readings) -> None:
    read = readings()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(read, f"r.example/none@{DIGEST}") for _ in range(2)]
        threading.Timer(0.3, registry.open.set).start()
        errors = [answer.exception() for answer in waiting]
    assert [type(error) for error in errors] == [NotFound, NotFound]
    assert {error.hint for error in errors} == {"look again"}
    with pytest.raises(NotFound):
        read(f"r.example/none@{DIGEST}")
    assert len(registry.asked) == 2


def test_one_registry_does_not_take_every_place(registry, readings) -> None:
    read = readings(deadline_s=0.2, at_once=3)
    for number in range(3):
        with pytest.raises(
            RegistryTimeout, match="other images are being read" if number else "took longer"
        ):
            read(f"slow.example/app:{number}")
    assert registry.asked == ["slow.example/app:0"]
    with pytest.raises(RegistryTimeout):
        read("other.example/app:1")
    assert registry.asked[1:] == ["other.example/app:1"]
    registry.open.set()


def test_more_questions_than_may_wait_are_refused_at_once(registry, readings) -> None:
    read = readings(waiting=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(read, "r.example/app:1")
        while not registry.asked:
            pass
        with pytest.raises(Unavailable, match="1 questions are waiting"):
            read("r.example/app:2")
        registry.open.set()
        assert first.result().digest == DIGEST
