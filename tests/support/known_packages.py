"""What the shipped facts say of packages, for readers of locks and environments."""

from compatgate.catalog import load_facts

PACKAGES = load_facts(overlays=[]).packages
