"""The section of bench/RESULTS.md about GPUs; a try on a CPU has no figures in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_judge import Said
from msgspec import Struct

from compatgate.canary.peaks import DOUBT, PeakShare, percent
from compatgate.canary.run import Device

RESULTS = Path(__file__).with_name("RESULTS.md")
HEADING = "## GPUs"
NOT_YET = """\
Not measured yet: no machine with a GPU has been at hand, and no figure is made up. On one,
`python3 bench/gpu.py` runs every GPU workload that can be run there, has the judge look at equal
runs and at regressions made on purpose, and writes this section with the share of the published
peak of memory and products ([how](../docs/how-to/measure-on-gpus.md))."""
ON_CPU = (
    "Made on a CPU, to try `bench/gpu.py` itself: nothing here is about a GPU, so that no figure "
    "is shown."
)


class Facts(Struct, frozen=True):
    """What was measured on.

    Attributes:
        gpus: that programs saw; none on a CPU.
        versions: component to version, as loaded in the processes.
        share: of published peaks, by workload.
    """

    device: str
    date: str
    gpus: Sequence[Device]
    driver: str | None
    versions: Mapping[str, str]
    share: Mapping[str, Sequence[PeakShare]]


def section(facts: Facts, said: Sequence[Said], skipped: Mapping[str, str], left: int) -> str:
    """Markdown without its heading.

    Args:
        facts: what was measured on.
        said: of every run.
        skipped: workload to why it was not run.
        left: steps of the plan that there was no time for.
    """
    parts = [_made(facts)]
    if facts.device != "cpu":
        parts += _peaks(facts)
    parts.append(_judged(said))
    if skipped:
        parts.append("Not run:\n\n" + "\n".join(f"- `{n}`: {why}" for n, why in skipped.items()))
    if left:
        parts.append(f"{left} runs of the plan are left: there was no time for them.")
    return "\n\n".join(parts) + "\n"


def _made(facts: Facts) -> str:
    if facts.device == "cpu":
        return ON_CPU
    gpus = ", ".join(dict.fromkeys(_name(gpu) for gpu in facts.gpus)) or "no GPU that was seen"
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    driver = facts.driver or "unknown"
    return f"Made by `bench/gpu.py` on {facts.date}: {gpus}, driver {driver}; {versions}."


def _name(gpu: Device) -> str:
    return f"{gpu.name}, slice {gpu.mig}" if gpu.mig else gpu.name


def _peaks(facts: Facts) -> list[str]:
    shares = [(name, share) for name, some in facts.share.items() for share in some]
    if not shares:
        return ["No peak is published of this GPU, or of what was measured on it."]
    rows = [
        f"| `{name}` {share.metric} | {share.median:.4g} {share.unit} | {percent(share.share)} "
        f"| {share.peak:.4g} {share.unit} | {share.source['title']}, {share.source['confidence']} |"
        for name, share in shares
    ]
    head = "| metric | median | of the published peak | peak | source |\n|---|---|---|---|---|"
    doubted = [f"`{name}` {share.metric}" for name, share in shares if share.implausible]
    return ["\n".join([head, *rows]), *([f"{', '.join(doubted)}: {DOUBT}"] if doubted else [])]


def _judged(said: Sequence[Said]) -> str:
    rows = [
        f"| `{one.workload}` | {one.label} | {one.word} | {_cell(one.words)} |"
        for one in said
        if one.kind != "baseline" or one.word != "as expected"
    ]
    good = sum(one.kind == "baseline" and one.word == "as expected" for one in said)
    intro = (
        f"{good} runs made the baselines. An `equal` run is one more of the same, in which the "
        "judge should find nothing; the others were made slower on purpose (`gpu_seeded.toml`)."
    )
    head = "| workload | run | the judge | |\n|---|---|---|---|"
    return "\n\n".join([intro, "\n".join([head, *rows])]) if rows else intro


def _cell(text: str) -> str:
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= 300 else f"{line[:300]}..."


def put(page: str, text: str) -> str:
    """A page with its section about GPUs replaced, or added at the end."""
    before, found, rest = page.partition(f"{HEADING}\n")
    after = rest.partition("\n## ")
    tail = f"\n## {after[2]}" if found and after[1] else ""
    return f"{before.rstrip()}\n\n{HEADING}\n\n{text.strip()}\n{tail}"


def carried(page: str) -> str:
    """The section of a page, for `bench/run.py` to keep: it is measured elsewhere."""
    _, found, rest = page.partition(f"{HEADING}\n")
    return rest.partition("\n## ")[0].strip() if found else NOT_YET
