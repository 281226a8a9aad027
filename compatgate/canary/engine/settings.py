"""How patient the engine and its queue are."""

from __future__ import annotations

from msgspec import Struct


class Settings(Struct, frozen=True):
    """Times in seconds.

    Attributes:
        heartbeat: between two renewals of a lease, and between two signs of life of a host.
        lease: after which a run whose worker is silent is given to another.
        pauses: before the second, the third and each further attempt of a run.
        poll: between two looks at a job that is silent.
        sample: between two looks at the GPUs' health.
        repeats: how often a step is run again when its values are too noisy to judge.
    """

    heartbeat: float = 10.0
    lease: float = 30.0
    pauses: tuple[float, ...] = (15.0, 60.0, 240.0)
    poll: float = 0.5
    sample: float = 5.0
    repeats: int = 2

    @classmethod
    def patient(cls, lease: float, pause: float) -> Settings:
        """Settings of which a user chose how long a lease holds, and the first pause."""
        pauses = tuple(pause * factor for factor in (1, 4, 16))
        return cls(heartbeat=lease / 3, lease=lease, pauses=pauses)


STANDARD = Settings()
