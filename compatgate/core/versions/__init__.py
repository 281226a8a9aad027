"""Versions in every spelling that drivers, toolkits, libraries and package indexes use.

Parts compare as numbers, never as text: driver 450.248.02 is newer than 450.80.02, cuDNN 9.14 is
newer than 9.2. What was written is kept for messages.
"""

from compatgate.core.versions.spellings import parse_version
from compatgate.core.versions.version import Version, agree, make, same_release, show

__all__ = ["Version", "agree", "make", "parse_version", "same_release", "show"]
