"""Read an image's config: variables, labels and requirements.

docs/decisions/007 says when the forward-compatibility package of an image is loaded. That an image
has the package is shown by its library alone: no variable or build step may lift a driver's limit.

Sources: ``matrix/facts/image_signals.yaml`` (what published images carry, and the traps);
NVIDIA/nvidia-container-toolkit ``internal/config/image/cuda_image.go`` (``GetRequirements``,
``IsLegacy``, ``HasDisableRequire``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from compatgate.core.components import COMPONENTS
from compatgate.core.gpu_code import parse_arch
from compatgate.core.stack_values import CompatUse
from compatgate.discovery.observations import Observation
from compatgate.discovery.registry.image_spec import Config
from compatgate.discovery.signals import COMPAT_USE, Signal, Signals, split_package, tidy_version
from compatgate.errors import BadInput

REQUIRE = "NVIDIA_REQUIRE_"
JETPACK = "NVIDIA_REQUIRE_JETPACK"
DISABLE_REQUIRE = "NVIDIA_DISABLE_REQUIRE"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")


class ConfigReading(Struct, frozen=True):
    """The statements of a config: per component, the observation that decides comes first.

    All expressions of ``require`` must hold, as the container runtime checks them. ``arch`` are the
    compute capabilities that an NVIDIA build was compiled for; None when not stated.
    """

    observations: tuple[Observation, ...]
    require: tuple[str, ...]
    disable_require: bool
    arch: tuple[str, ...] | None


def read_config(config: Config, signals: Signals) -> ConfigReading:
    """Read a config by the published signals."""
    env = read_environment(config)
    labels = (config.config.labels if config.config else None) or {}
    values = [(s, env.get(s.name, ""), f"env {s.name}") for s in signals.environment]
    values += [(s, labels.get(s.name, ""), f"label {s.name}") for s in signals.labels]
    observations = [
        seen for signal, value, origin in values if (seen := _observation(signal, value, origin))
    ]
    ngc = any(
        value and (bool(signal.families) and all(f.startswith("ngc") for f in signal.families))
        for signal, value, _ in values
    )
    # NGC's start script tests the package before the library path names it
    found = compat_use_of_path(env.get("LD_LIBRARY_PATH", "").split(":"), "env LD_LIBRARY_PATH")
    if not found and env.get("_CUDA_COMPAT_PATH"):
        found = [Observation(COMPAT_USE, "tried", "env _CUDA_COMPAT_PATH", "derived")]
    observations += found
    # A package that names the CUDA of its build is a better witness than a bare version.
    observations.sort(key=lambda o: (o.confidence != "metadata", "+cu" not in o.version))
    return ConfigReading(
        tuple(dict.fromkeys(observations)),
        _requirements(env, signals),
        env.get(DISABLE_REQUIRE, "") in _TRUE,
        _arch(values) if ngc else None,
    )


def read_environment(config: Config) -> dict[str, str]:
    """Return the variables; the last value of a variable counts."""
    pairs = (item.partition("=") for item in (config.config.env if config.config else None) or [])
    return {name: value for name, _, value in pairs}


def _observation(signal: Signal, value: str, origin: str) -> Observation | None:
    if not value or signal.confidence is None or signal.component not in COMPONENTS:
        return None
    package = split_package(value.strip().strip("\"'"))
    name, text = package or ("", value)
    version = tidy_version(signal.component, text, name)
    if version is None:
        return None
    return Observation(signal.component, version, origin, signal.confidence)


def _requirements(env: Mapping[str, str], signals: Signals) -> tuple[str, ...]:
    """Return the expressions of ``NVIDIA_REQUIRE_*``, and the one that a legacy image implies."""
    requirements = [
        value
        for name, value in sorted(env.items())
        if name.startswith(REQUIRE)
        and not name.startswith(JETPACK)
        and name not in signals.ignored
        and value
    ]
    if not env.get("NVIDIA_REQUIRE_CUDA"):
        match = re.match(r"(\d{1,2})\.(\d{1,2})(?:\.|$)", env.get("CUDA_VERSION", ""))
        requirements += [f"cuda>={match[1]}.{match[2]}"] if match else []
    return tuple(requirements)


def _arch(values: Iterable[tuple[Signal, str, str]]) -> tuple[str, ...] | None:
    """Read ``8.0 8.6 9.0+PTX`` of an NGC build; other images may set it for a later build."""
    for signal, value, _ in values:
        if signal.component == "arch" and value:
            try:
                codes = [a for item in re.split(r"[\s;]+", value.strip()) for a in parse_arch(item)]
            except BadInput:
                return None
            return tuple(dict.fromkeys(code.name for code in codes))
    return None


_COMPAT_FOLDER = re.compile(r"(?:/usr/local/cuda[^/]*|/opt/[^/]+)/compat(?P<lib>/lib)?/?")


def compat_use_of_path(folders: Iterable[str], origin: str) -> list[Observation]:
    """Return how the folders of a library path load the forward-compatibility package.

    ``/usr/local/cuda/compat`` always exists. ``compat/lib`` of NGC's images is a link that their
    start script makes where the package works, to ``lib.real``.
    """
    uses = []
    for folder in folders:
        if match := _COMPAT_FOLDER.fullmatch(folder.strip()):
            use: CompatUse = "tried" if match["lib"] else "always"
            seen = Observation(COMPAT_USE, use, f"{origin}: {folder.strip()}", "derived")
            uses.append(seen)
    return sorted(uses, key=lambda seen: seen.version)[:1]  # "always" before "tried"
