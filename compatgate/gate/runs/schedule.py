"""Which run goes to which host next. Nobody who waits for many slots is overtaken for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from compatgate.store.leases import Offer, fits
from compatgate.store.run_rows import RunRow


class Chosen(Struct, frozen=True):
    """A run with the slots that it gets."""

    run: RunRow
    host: str
    slots: tuple[int, ...]


def choose(
    offers: Sequence[Offer],
    taken: Mapping[str, set[int]],
    next_for: Callable[[Sequence[Offer], Sequence[str]], RunRow | None],
) -> Chosen | None:
    """The first run, in the queue's order, that some host can run now.

    A run that fits no host now keeps the one that comes nearest for itself: what comes after it
    must not take the slots that it waits for.

    Args:
        offers: hosts that may take runs.
        taken: their slots that runs have.
        next_for: the first run that any of some hosts could ever run, but for some runs.
    """
    open_, passed = list(offers), list[str]()
    while open_:
        run = next_for(open_, passed)
        if run is None:
            return None
        able = sorted(
            (offer for offer in open_ if fits(run, offer)),
            key=lambda offer: (run.gpu is None and offer.gpu is not None, -_free(offer, taken)),
        )
        for offer in able:
            if _free(offer, taken) >= run.gpus:
                free = [slot for slot in range(offer.slots) if slot not in taken[offer.host]]
                return Chosen(run, offer.host, tuple(free[: run.gpus]))
        passed.append(run.id)
        nearest = max(able, key=lambda offer: _free(offer, taken), default=None)
        open_ = [offer for offer in open_ if offer is not nearest]
    return None


def _free(offer: Offer, taken: Mapping[str, set[int]]) -> int:
    return sum(slot not in taken[offer.host] for slot in range(offer.slots))
