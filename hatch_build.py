"""Build hook: puts the facts, compiled, into the wheel beside the files they come from."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Compiles ``matrix/facts`` so that an installed compatgate never parses YAML."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is written.

        Args:
            version: ``standard`` or ``editable``; an editable install reads the checkout.
            build_data: what the wheel will include.
        """
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from compatgate.catalog.library import compile_all

            self._scratch = tempfile.TemporaryDirectory(prefix="compatgate-catalog-")
            compile_all(self._scratch.name)
        finally:
            sys.path.remove(self.root)
        build_data["force_include"][self._scratch.name] = "compatgate/_data/catalog"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if scratch := getattr(self, "_scratch", None):
            scratch.cleanup()
