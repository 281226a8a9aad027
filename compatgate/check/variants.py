"""Provide the variant properties of a target's pools to installers of variant wheels.

An installer that queries plugins (PEP 850; the reference library is variantlib) imports
`VariantProvider` by the entry point ``nvidia`` of the group ``variant_plugins``, or by the
``plugin-api`` of an index: ``compatgate.check.variants:VariantProvider``. These variables name the
pools to answer for:

* ``COMPATGATE_VARIANT_POOLS``: descriptions like ``driver=580.95.05,gpu=L4``, separated by
  semicolons; or
* ``COMPATGATE_VARIANT_TARGET``: a target of the bundle in ``COMPATGATE_VARIANT_BUNDLE``, of
  ``COMPATGATE_SERVER``, or of the database.

uv has NVIDIA's provider built in, and takes the variables of ``compatgate env`` instead.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.core.variant_properties import (
    MULTI_VALUED,
    NAMESPACE,
    VariantProperties,
    list_all,
)
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts import Facts
    from compatgate.core.request import Pool

POOLS = "COMPATGATE_VARIANT_POOLS"
TARGET = "COMPATGATE_VARIANT_TARGET"
BUNDLE = "COMPATGATE_VARIANT_BUNDLE"


class FeatureConfig(Struct, frozen=True):
    """A feature with its values, as installers read it.

    Attributes:
        values: best first.
        multi_value: a wheel may name several, any of which is enough.
    """

    name: str
    values: list[str]
    multi_value: bool = False


class VariantProvider:
    """Answer for the pools that the environment names, as a plugin of PEP 850."""

    namespace = NAMESPACE

    @classmethod
    def get_all_configs(cls) -> list[FeatureConfig]:
        """Return every value that a wheel may name."""
        return _to_configs(list_all())

    @classmethod
    def get_supported_configs(cls) -> list[FeatureConfig]:
        """Return what suits every named pool.

        Raises:
            BadInput: no pool or target is named, or a pool is malformed.
            NotFound: the target does not exist.
            Unavailable: the server or the database does not answer.
        """
        from compatgate.catalog import load_facts
        from compatgate.core.build_environment import build_environment

        facts = load_facts(None)
        return _to_configs(build_environment(_read_pools(facts), facts).variants)


def _to_configs(found: VariantProperties) -> list[FeatureConfig]:
    return [
        FeatureConfig(name, list(values), name in MULTI_VALUED)
        for name, values in found.features.items()
    ]


def _read_pools(facts: Facts) -> Sequence[Pool]:
    from compatgate.check.deciders import pools_of
    from compatgate.check.question import name_pools, read_pool
    from compatgate.core.request import parse_pool

    texts = [text for text in os.environ.get(POOLS, "").split(";") if text.strip()]
    target = os.environ.get(TARGET, "")
    if bool(texts) == bool(target):
        what = "names pools and a target" if texts else "names no pool and no target"
        hint = f"set {POOLS}, like driver=580.95.05,gpu=L4, or {TARGET}"
        raise BadInput(f"the environment {what}", field=POOLS, hint=hint)
    if texts:
        bodies = [dict(one) for one in name_pools([read_pool(text.strip()) for text in texts])]
    else:
        asked = argparse.Namespace(
            target=target,
            bundle=os.environ.get(BUNDLE) or None,
            server=None,
            token=None,
            database=None,
            facts=None,
        )
        bodies = pools_of(asked)
    return [parse_pool(body, facts.gpus) for body in bodies]
