"""How patient the engine is."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True):
    """Times in seconds.

    Attributes:
        heartbeat: between two renewals of a lease.
        lease: after which a run whose worker is silent is given to another.
        poll: between two looks at a job that is silent.
        sample: between two looks at the GPUs' health.
        repeats: how often a step is run again when its values are too noisy to judge.
    """

    heartbeat: float = 10.0
    lease: float = 30.0
    poll: float = 0.5
    sample: float = 5.0
    repeats: int = 2


STANDARD = Settings()
