"""Read the frameworks that a Python process has imported, and the CUDA they were built for.

Like `compatgate.diagnostics.loaded`, this file needs only the standard library and imports no
framework. It reads only variables that a module already has, so that no lazy attribute is loaded.
"""

from __future__ import annotations

import platform
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VERSIONS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "cupy": "cupy",
    "vllm": "vllm",
    "transformer_engine": "transformer-engine",
    "flash_attn": "flash-attn",
}
_JAX_PLUGIN = re.compile(r"jax_cuda(\d+)_plugin")


class Statement(NamedTuple):
    """A version that a module states.

    Attributes:
        origin: variable, ``torch.version.cuda``.
        built: the framework was built for this version; another one may be loaded.
    """

    component: str
    version: str
    origin: str
    built: bool = False


def imported_frameworks(modules: Mapping[str, Any] | None = None) -> list[Statement]:
    """Return the versions of imported frameworks, and the versions they were built for."""
    modules = sys.modules if modules is None else modules
    found = [Statement("python", platform.python_version(), "sys.version")]
    for name, component in _VERSIONS.items():
        version = _text(modules, name, "__version__")
        if version:
            label = _jax_label(modules) if component == "jax" else ""
            found.append(Statement(component, version + label, f"{name}.__version__"))
    return [*found, *_onnxruntime(modules), *_build_statements(modules)]


def gpu_code(modules: Mapping[str, Any] | None = None) -> list[str]:
    """Return the architectures of PyTorch's GPU code; empty if other frameworks have GPU code."""
    modules = sys.modules if modules is None else modules
    if any(name in modules for name in _VERSIONS if name != "torch"):
        return []
    flags = _call(_member(modules, "torch._C", "_cuda_getArchFlags"))
    return flags.split() if isinstance(flags, str) else []


def _onnxruntime(modules: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield the version of ONNX Runtime; its build file tells the CPU and GPU packages apart."""
    name = "onnxruntime.capi.build_and_package_info"
    if _text(modules, name, "package_name") == "onnxruntime-gpu":
        version = _text(modules, name, "__version__")
        if version:
            yield Statement("onnxruntime-gpu", version, f"{name}.__version__")
        for component, key in (("cuda", "cuda_version"), ("cudnn", "cudnn_version")):
            if stated := _text(modules, name, key):
                yield Statement(component, stated, f"{name}.{key}", built=True)


def _build_statements(modules: Mapping[str, Any]) -> Iterator[Statement]:
    if cuda := _text(modules, "torch.version", "cuda"):
        yield Statement("cuda", cuda, "torch.version.cuda", built=True)
    cudnn = _member(modules, "torch._C", "_cudnn")
    compiled = _call(getattr(cudnn, "getCompileVersion", None))
    if isinstance(compiled, tuple):
        version = ".".join(map(str, compiled))
        yield Statement("cudnn", version, "torch._C._cudnn.getCompileVersion()", built=True)
    info = _member(modules, "tensorflow.python.platform.build_info", "build_info")
    if hasattr(info, "get"):
        for component in ("cuda", "cudnn"):
            stated = info.get(f"{component}_version")
            if isinstance(stated, str) and stated:
                origin = f"tensorflow.sysconfig.get_build_info()['{component}_version']"
                yield Statement(component, stated, origin, built=True)


def _jax_label(modules: Mapping[str, Any]) -> str:
    """Return ``+cuda12``, from the plugin that JAX has imported."""
    majors = [match[1] for name in list(modules) if (match := _JAX_PLUGIN.fullmatch(name))]
    return f"+cuda{majors[0]}" if majors else ""


def _member(modules: Mapping[str, Any], module: str, name: str) -> Any:
    try:
        return vars(modules[module]).get(name)
    except (KeyError, TypeError):
        return None


def _text(modules: Mapping[str, Any], module: str, name: str) -> str:
    value = _member(modules, module, name)
    return str(value) if isinstance(value, str) else ""


def _call(function: Any) -> Any:
    try:
        return function() if callable(function) else None
    except Exception:
        return None
