"""Lockfiles: what a project has locked, as observations of its stack."""

from compatgate.discovery.lockfiles.interface import LockReading
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile

__all__ = ["LockReading", "Platform", "read_lockfile"]
