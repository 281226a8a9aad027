"""Import an image's frameworks, and read the versions that they were built for.

Python 3.8 or newer.
"""

import importlib
import importlib.util

MODULES = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "onnxruntime-gpu": "onnxruntime",
    "cupy": "cupy",
}


def imported():
    """Import the installed frameworks.

    Returns:
        Component to module, and component to its import error.
    """
    modules, failed = {}, {}
    for component, name in MODULES.items():
        if importlib.util.find_spec(name) is None:
            continue
        try:
            modules[component] = importlib.import_module(name)
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            failed[component] = f"{type(error).__name__}: {lines[0][:300]}"
    return modules, failed


def version(module):
    """Return the version that a framework states."""
    return str(getattr(module, "__version__", "")) or None


def built_for(component, module):
    """Return the versions that a framework was compiled against, as far as it states them."""
    try:
        if component == "torch":
            return _torch(module)
        if component == "tensorflow":
            info = module.sysconfig.get_build_info()
            return _texts({"cuda": info.get("cuda_version"), "cudnn": info.get("cudnn_version")})
    except Exception:
        return {}
    return {}


def _torch(torch):
    compiled = getattr(torch._C, "_cudnn", None)
    parts = compiled.getCompileVersion() if compiled else None
    cudnn = ".".join(map(str, parts)) if parts else None
    return _texts({"cuda": torch.version.cuda, "cudnn": cudnn})


def _texts(stated):
    return {name: str(value) for name, value in stated.items() if value}
