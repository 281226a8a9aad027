"""Report the libraries loaded with the image's frameworks; headers, files, libraries must agree."""

import ctypes
import os
import platform
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# In a container next to the program; in the repository and in an installation elsewhere.
OURS = [
    HERE,
    os.path.join(HERE, "lib"),
    os.path.join(HERE, os.pardir, "lib"),
    os.path.join(HERE, os.pardir, os.pardir, "compatgate", "diagnostics"),
    os.path.join(HERE, os.pardir, os.pardir, os.pardir, "diagnostics"),
]
sys.path[:0] = OURS

import canary_driver  # noqa: E402
import canary_lines as say  # noqa: E402
import frameworks  # noqa: E402
import headers  # noqa: E402
import loaded  # noqa: E402
from canary_nvml import NoNvml, Nvml  # noqa: E402

# Our folder is first for the imports above, last for imports of the image's frameworks, which may
# have a module of the same name.
sys.path[:] = [path for path in sys.path if path not in OURS] + OURS

SONAMES = {
    "cuda": ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"),
    "cudnn": ("libcudnn.so.9", "libcudnn.so.8"),
    "nccl": ("libnccl.so.2",),
}
"""Libraries to load by name if no framework has loaded them, as a program of this image would."""


def main():
    """Load the frameworks, inspect the process, report and compare."""
    modules, failed = frameworks.imported()
    _load_missing({library.component for library in loaded.loaded_libraries()})
    libraries = [lib for lib in loaded.loaded_libraries() if lib.component != loaded.DRIVER_CUDA]
    versions = loaded.versions(libraries)
    for component, module in modules.items():
        if frameworks.version(module):
            versions[component] = frameworks.version(module)
    versions["python"] = platform.python_version()
    paths = loaded.paths(libraries)
    paths.update((c, m.__file__) for c, m in modules.items() if getattr(m, "__file__", None))
    driver, gpus = _driver()
    say.env(driver=driver, gpus=gpus, versions=versions, paths=paths, **_more(libraries, modules))
    _say("imports", [f"{c}: {why}" for c, why in failed.items()], f"{len(modules)} imported")
    missing = [] if "cuda" in versions else ["no CUDA runtime is loaded, and none can be"]
    _say("loaded", missing, ", ".join(sorted(versions)))
    _say("one-copy", _copies(libraries), "one of each")
    _say("files-agree", _files(libraries), f"{len(libraries)} libraries")
    wrong, seen = _headers(versions, paths)
    _say("headers-agree", wrong, f"{seen} headers with libraries")
    _say("frameworks-agree", _frameworks(modules, versions), f"{len(modules)} frameworks")


def _load_missing(there):
    for component, names in SONAMES.items():
        for name in names if component not in there else ():
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            break


def _driver():
    try:
        with Nvml() as nvml:
            devices = nvml.devices()
            usable = [part for d in devices for part in (nvml.slices(d) if nvml.mig(d) else [d])]
            return nvml.driver(), [nvml.describe(device) for device in usable]
    except NoNvml:
        return canary_driver.kernel_module(), []


def _more(libraries, modules):
    """Return the data of the comparison, for people."""
    return {
        "libraries": [library._asdict() for library in libraries],
        "built_for": {c: frameworks.built_for(c, m) for c, m in modules.items()},
    }


def _say(name, wrong, right):
    say.check(name, not wrong, "; ".join(wrong) or right)


def _copies(libraries):
    """Return libraries with two copies: parts of one library are in one folder."""
    places = {}
    for library in libraries:
        name = os.path.basename(library.path).partition(".so")[0]
        places.setdefault((library.component, name), set()).add(library.path)
    return [
        "{} is loaded from {}".format(name, " and ".join(sorted(paths)))
        for (_, name), paths in sorted(places.items())
        if len(paths) > 1
    ]


def _files(libraries):
    return [
        f"{library.path} reports {library.reported}"
        for library in libraries
        if library.reported and library.name_version and not _same(library)
    ]


def _same(library):
    return _agrees(library.reported, library.name_version)


def _headers(versions, paths):
    wrong, seen = [], 0
    for component in SONAMES:
        if component not in paths:
            continue
        stated, header = headers.version(component, paths[component])
        if stated is None:
            continue
        seen += 1
        if not _agrees(stated, versions.get(component, stated)):
            wrong.append(f"{header} states {stated}, but {versions[component]} is loaded")
    return wrong, seen


def _frameworks(modules, versions):
    """Return frameworks that were built for another major of CUDA or cuDNN."""
    wrong = []
    for name, module in modules.items():
        for component, built in frameworks.built_for(name, module).items():
            have = versions.get(component)
            if have and built.split(".")[0] != have.split(".")[0]:
                wrong.append(f"{name} was built for {component} {built}, but {have} is loaded")
    return wrong


def _agrees(one, other):
    """Return whether two versions are equal in the parts that both state."""
    pairs = zip(one.split("."), other.split("."))
    return all(int(a) == int(b) for a, b in pairs if a.isdigit() and b.isdigit())


if __name__ == "__main__":
    main()
