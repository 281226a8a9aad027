"""Error texts of public threads get the cause that a reader gave them; unrelated errors get none.

The threads are split by a hash of their addresses. Signatures were tuned on one half alone; the
other half says how well they do on texts that they were not written for. Threads that the notes
behind the signatures name count as tuned. ``pytest -s`` shows the figures.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from conftest import read_source
from tables import read_table

from compatgate.catalog.build import adapt
from compatgate.core.facts.errors import ErrorTable
from compatgate.core.triage import FoundCause, find_causes

HERE = Path(__file__).parent / "triage"
THREADS = read_table(HERE / "threads.yaml")
UNRELATED = read_table(HERE / "unrelated.yaml")
SOURCES = read_table(HERE / "sources.yaml")
PROGRAMS = [*read_table(HERE / "programs.yaml"), *read_table(HERE / "programs_fresh.yaml")]
UNKNOWN = "unknown"
WITHOUT_SIGNATURE = {"driver-library-broken"}
"""Labels that the untouched half alone has: nothing was written for them."""
LEAST_RIGHT = 0.85


@cache
def table() -> ErrorTable:
    return adapt("error_signatures", read_source("error_signatures"))


def is_untouched(thread: dict[str, Any]) -> bool:
    odd = int(sha256(thread["thread"].encode()).hexdigest(), 16) % 2
    return bool(odd) and not thread.get("noted")


def is_right(label: str, found: tuple[FoundCause, ...]) -> bool:
    """Tell whether the first cause is the labelled one; of an unknown text nothing may be said."""
    return (found[0].cause.id if found else UNKNOWN) == label


def is_wrong_with_certainty(label: str, found: tuple[FoundCause, ...]) -> bool:
    """Tell whether any cause is named with certainty that is not the labelled one."""
    return any(one.confidence == "certain" and one.cause.id != label for one in found)


def judge(threads: list[dict[str, Any]], half: str) -> tuple[float, list[str]]:
    """Print the figures of a half; return the share named right, and the wrong ones."""
    found = [(one, find_causes(one["text"], table())) for one in threads]
    right = sum(is_right(one["cause"], causes) for one, causes in found)
    silent = sum(not causes and one["cause"] != UNKNOWN for one, causes in found)
    wrong = [one["text"] for one, causes in found if is_wrong_with_certainty(one["cause"], causes)]
    print(
        f"\n{half} half: {right} of {len(found)} named right ({right / len(found):.1%}),"
        f" {len(wrong)} named wrong with certainty, {silent} not recognised"
    )
    return right / len(found), wrong


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len({one["thread"] for one in THREADS}) == len(THREADS) >= 500
    assert len({one["text"] for one in UNRELATED}) == len(UNRELATED) >= 295
    assert len(table().signatures) >= 1000
    labels = {one["cause"] for one in THREADS} - {UNKNOWN}
    assert labels - set(table().by_id) <= WITHOUT_SIGNATURE


def test_the_untouched_half_is_named_right() -> None:
    share, wrong = judge([one for one in THREADS if is_untouched(one)], "untouched")
    assert share >= LEAST_RIGHT
    assert wrong == []


def test_the_tuned_half_is_named_right() -> None:
    share, wrong = judge([one for one in THREADS if not is_untouched(one)], "tuned")
    assert share >= LEAST_RIGHT
    assert wrong == []


def test_texts_of_the_sources_are_named() -> None:
    wrong = [
        f"{one['id']} {one['cause']}: {one['text']}"
        for one in SOURCES
        if not is_right(one["cause"], find_causes(one["text"], table()))
    ]
    assert len(SOURCES) >= 450
    assert wrong == []


def test_texts_of_many_programs_are_named() -> None:
    share, wrong = judge(PROGRAMS, "programs")
    assert len(PROGRAMS) == 120
    assert share >= LEAST_RIGHT
    assert wrong == []


def test_no_unrelated_error_is_claimed() -> None:
    claimed = [one["text"] for one in UNRELATED if find_causes(one["text"], table())]
    print(f"\nunrelated errors: {len(claimed)} of {len(UNRELATED)} claimed")
    assert claimed == []


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error 1 at ggml-cuda.cu:1920: invalid argument",
        "CUDA error at main.cu:88 code=1(cudaErrorInvalidValue)",
        "cuDNN Error: CUDNN_STATUS_BAD_PARAM in convolutional_kernels.cu",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
        "Running on GPU with fp16 precision",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
        "NCCL INFO NET/IB : No device found.",
        "transaction with xid 79 was committed",
        "postgres: xid error 13 in snapshot",
        "error: implicit declaration of function 'snprintf_s'",
        "ERROR: operator public::int does not exist",
        "FATAL: could not open postgres.conf",
        "nvidia-smi: no errors, imex channel 0 ready",
    ],
)
def test_what_shows_no_cause_names_none(text: str) -> None:
    assert find_causes(text, table()) == ()


def test_what_follows_from_another_error_is_never_certain() -> None:
    symptoms = [one for one in table().signatures if one.symptom]
    assert [one.id for one in symptoms if one.certainty == "certain"] == []


def test_of_several_causes_none_is_certain() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory.\nCUDA error: device-side assert triggered"
    assert {one.confidence for one in find_causes(text, table())} == {"likely"}


def test_words_that_fit_two_causes_name_both_as_likely() -> None:
    found = find_causes("cuda compute cap 61 is not supported", table())
    assert [(one.cause.id, one.confidence) for one in found] == [
        ("gpu-lacks-feature", "likely"),
        ("no-kernel-image", "likely"),
    ]


@pytest.mark.parametrize("name", [signature.id for signature in table().signatures])
def test_a_signature_matches_its_sample(name: str) -> None:
    signature = next(one for one in table().signatures if one.id == name)
    found = find_causes(signature.sample, table())
    assert signature.cause in [one.cause.id for one in found if one.seen == found[0].seen]
    alone = ErrorTable(table().causes, (signature,), table().foreign_words)
    assert [one.signature for one in find_causes(signature.sample, alone)] == [name]
    assert find_causes("", alone) == ()


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    """Each text repeats the beginning of patterns, so that matching starts everywhere."""
    starts = " ".join({s.patterns[0][0].text for s in table().signatures})
    short, long = (min(timed(starts * times) for _ in range(3)) for times in (3, 24))
    assert long < 8 * short * 3


def timed(text: str) -> float:
    from time import process_time

    begin = process_time()
    find_causes(text, table())
    return process_time() - begin


def test_an_amd_gpu_beside_it_hides_no_nvidia_error() -> None:
    text = (
        "kernel: [drm] amdgpu kernel modesetting enabled.\n"
        "kernel: NVRM: API mismatch: the client has the version 550.54.14, but\n"
        "kernel: NVRM: this kernel module has the version 535.183.01.\n"
    )
    assert [one.cause.id for one in find_causes(text, table())] == ["driver-library-mismatch"]
