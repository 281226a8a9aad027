"""Compare everything that the facts follow with what an index offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.catalog.library import Library
from compatgate.catalog.sources import title
from compatgate.core.facts import Facts
from compatgate.errors import CompatgateError, NotFound
from compatgate.refresh.bounds import Bounds
from compatgate.refresh.frameworks import FrameworkReader
from compatgate.refresh.libraries import LibraryReader
from compatgate.refresh.listing import Listing
from compatgate.refresh.news import News
from compatgate.refresh.packages import news_of_package
from compatgate.refresh.recipes import recipe_of

LIBRARIES = ("cudnn", "nccl", "cuda_driver")
Found = tuple[list[News], int]
Look = Callable[[Listing, Bounds], Found]


class Followed(Struct, frozen=True):
    """Something that the facts follow on the index.

    Attributes:
        facts: fact file, ``packages/xformers``.
        names: by which a person may ask for it, its distributions among them.
        distributions: that are asked for on the index.
        look: gives what is new.
        has_wheels: the index is expected to have wheels of it; a package of which only its source
            is known has none.
    """

    facts: str
    names: frozenset[str]
    distributions: tuple[str, ...]
    look: Look
    has_wheels: bool = True


class Survey(Struct, frozen=True):
    """What was found of one thing that the facts follow.

    Attributes:
        left_out: new releases beyond the limit.
        problem: why the index could not be asked; None: it was.
    """

    facts: str
    news: tuple[News, ...] = ()
    left_out: int = 0
    problem: CompatgateError | None = None


def followed(library: Library, facts: Facts) -> list[Followed]:
    """List what the facts follow: frameworks and libraries first, then packages with records."""
    found = []
    for name in (*(n for n in library.names if n.startswith("frameworks/")), *LIBRARIES):
        one = _framework(name, library, facts) if "/" in name else _library(name, library)
        if one:
            found.append(one)
    found += [package(name, facts) for name in sorted(facts.recorded)]
    return found


def _framework(source: str, library: Library, facts: Facts) -> Followed | None:
    document = library.document(source)
    recipe = recipe_of(document)
    if recipe is None:
        return None

    def look(listing: Listing, bounds: Bounds) -> Found:
        return FrameworkReader(document, recipe, listing, facts.packages).news(bounds)

    names = frozenset((document["component"], *recipe.names))
    return Followed(source, names, recipe.names, look)


def _library(source: str, library: Library) -> Followed | None:
    document = library.document(source)
    distributions = tuple(document.get("distributions", ()))

    def look(listing: Listing, bounds: Bounds) -> Found:
        return LibraryReader(source, document, listing).news(bounds)

    names = frozenset((source, *distributions))
    return Followed(source, names, distributions, look) if distributions else None


def package(name: str, facts: Facts) -> Followed:
    """Describe a package, with records or without any yet."""

    def look(listing: Listing, bounds: Bounds) -> Found:
        return news_of_package(name, facts.records(name), listing.releases(name), bounds)

    has_wheels = bool(facts.records(name)) or name not in facts.recorded
    return Followed(f"packages/{name}", frozenset((name,)), (name,), look, has_wheels)


def chosen(known: Sequence[Followed], names: Sequence[str], facts: Facts) -> list[Followed]:
    """Choose what a person named, all of it without a name; other names are packages."""
    if not names:
        return list(known)
    found: dict[str, Followed] = {}
    for name in map(str, map(canonicalize_name, names)):
        named = [one for one in known if name in one.names or title(one.facts) == name]
        for one in named or [package(name, facts)]:
            found[one.facts] = one
    return list(found.values())


def survey(things: Sequence[Followed], listing: Listing, bounds: Bounds) -> Iterator[Survey]:
    """Ask the index about each thing; what it cannot answer is a problem of that thing alone."""
    for one in things:
        try:
            if not any(listing.releases(name) for name in one.distributions):
                if not one.has_wheels:
                    continue
                raise NotFound("the index has no wheel of it", field=", ".join(one.distributions))
            news, left_out = one.look(listing, bounds)
        except CompatgateError as error:
            yield Survey(one.facts, problem=error)
            continue
        yield Survey(one.facts, tuple(news), left_out)
