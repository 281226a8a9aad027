"""Take the forms that load and remove the example fleet."""

from __future__ import annotations

from typing import Any

from compatgate.kit.http.links import link
from compatgate.service.examples.service import load_example, remove_example
from compatgate.service.matrix.service import Authorship
from compatgate.service.web.page import PageRequest, Redirect, page


@page("/example-fleet/load", scope="bless", method="POST")
def load_example_fleet(ask: PageRequest[Any]) -> Redirect:
    """Load the example fleet into an empty gate."""
    by = Authorship(ask.principal.name, "load the example fleet", ask.principal)
    documents = load_example(ask.gate, by)
    return Redirect(link(), f"Loaded the example fleet: {documents} documents and its nodes.")


@page("/example-fleet/remove", scope="bless", method="POST")
def remove_example_fleet(ask: PageRequest[Any]) -> Redirect:
    """Remove the example fleet, and nothing else."""
    by = Authorship(ask.principal.name, "remove the example fleet", ask.principal)
    documents, nodes = remove_example(ask.gate, by)
    done = f"Removed the example fleet: {documents} documents and {nodes} nodes."
    return Redirect(link(), done)
