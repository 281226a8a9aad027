"""What imported modules say, without importing any."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from compatgate.diagnostics.imported import gpu_code, imported_frameworks


def module(name: str, **members: Any) -> tuple[str, ModuleType]:
    made = ModuleType(name)
    vars(made).update(members)
    return name, made


def said(*modules: tuple[str, ModuleType]) -> list[tuple[str, str, bool]]:
    found = imported_frameworks(dict(modules))
    return [(s.component, s.version, s.built) for s in found if s.component != "python"]


TORCH_C = module(
    "torch._C",
    _cudnn=module("torch._C._cudnn", getCompileVersion=lambda: (9, 1, 0))[1],
    _cuda_getArchFlags=lambda: "sm_80 sm_90 compute_90",
)
TORCH = module("torch", __version__="2.4.1+cu124")


def test_torch_says_what_it_is_and_was_built_for() -> None:
    modules = (TORCH, module("torch.version", cuda="12.4"), TORCH_C)
    assert said(*modules) == [
        ("torch", "2.4.1+cu124", False),
        ("cuda", "12.4", True),
        ("cudnn", "9.1.0", True),
    ]
    assert gpu_code(dict(modules)) == ["sm_80", "sm_90", "compute_90"]


def test_gpu_code_is_not_told_where_others_bring_some_too() -> None:
    assert gpu_code(dict([TORCH, TORCH_C, module("flash_attn")])) == []


def test_jax_is_labelled_by_its_plugin() -> None:
    assert said(module("jax", __version__="0.4.35"), module("jax_cuda12_plugin")) == [
        ("jax", "0.4.35+cuda12", False)
    ]


def test_onnxruntime_counts_in_its_gpu_package_only() -> None:
    name = "onnxruntime.capi.build_and_package_info"
    gpu = module(name, package_name="onnxruntime-gpu", __version__="1.19.2", cuda_version="12.4")
    assert said(gpu) == [("onnxruntime-gpu", "1.19.2", False), ("cuda", "12.4", True)]
    assert said(module(name, package_name="onnxruntime", __version__="1.19.2")) == []


def test_tensorflow_says_what_it_was_built_for() -> None:
    info = {"cuda_version": "12.5.1", "cudnn_version": "9", "is_cuda_build": True}
    modules = (
        module("tensorflow", __version__="2.18.0"),
        module("tensorflow.python.platform.build_info", build_info=info),
    )
    assert said(*modules) == [
        ("tensorflow", "2.18.0", False),
        ("cuda", "12.5.1", True),
        ("cudnn", "9", True),
    ]


def test_a_lazy_module_is_not_brought_to_life() -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was asked for")

    assert said(("vllm", Lazy("vllm")), ("torch.version", Lazy("torch.version"))) == []


def test_what_fails_or_is_something_else_is_passed_over() -> None:
    def fails() -> None:
        raise RuntimeError

    broken = module("torch._C", _cudnn=None, _cuda_getArchFlags=fails)
    assert said(module("torch", __version__=7), broken) == []
    assert gpu_code(dict([broken])) == []
    assert said(("torch", None)) == []  # type: ignore[arg-type]
