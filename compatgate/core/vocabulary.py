"""The components of matrix/facts/components.yaml, written by ``make vocabulary``."""

from __future__ import annotations

from typing import Any

COMPONENTS: tuple[tuple[Any, ...], ...] = (
    ("driver", "driver", "driver", "NVIDIA driver"),
    ("cuda", "cuda", "library", "CUDA"),
    ("cudnn", "cudnn", "library", "cuDNN"),
    ("nccl", "nccl", "library", "NCCL"),
    ("cublas", "pep440", "library", "cuBLAS"),
    ("tensorrt", "pep440", "library", "TensorRT"),
    ("python", "python", "runtime", "Python"),
    ("torch", "pep440", "framework", "PyTorch"),
    ("tensorflow", "pep440", "framework", "TensorFlow"),
    ("jax", "pep440", "framework", "JAX"),
    ("onnxruntime-gpu", "pep440", "framework", "ONNX Runtime"),
    ("vllm", "pep440", "framework", "vLLM"),
    ("cupy", "pep440", "framework", "CuPy"),
    ("transformer-engine", "pep440", "framework", "Transformer Engine"),
    ("flash-attn", "pep440", "framework", "FlashAttention"),
    ("tritonserver", "pep440", "framework", "Triton Inference Server"),
    ("gcc", "compiler", "build", "GCC"),
    ("clang", "compiler", "build", "Clang"),
    ("msvc", "msvc", "build", "MSVC"),
    ("glibc", "compiler", "build", "glibc"),
    ("cxx", "cxx", "build", "C++ standard"),
)
"""Name, form of version, kind and title, in canonical order."""

ALIASES: dict[str, str] = {
    "nvidia-driver": "driver",
    "cuda-toolkit": "cuda",
    "cuda-runtime": "cuda",
    "cudart": "cuda",
    "cudatoolkit": "cuda",
    "libcudart": "cuda",
    "nvidia-cuda-runtime": "cuda",
    "pytorch-cuda": "cuda",
    "libcudnn": "cudnn",
    "nvidia-cudnn": "cudnn",
    "libnccl": "nccl",
    "nvidia-nccl": "nccl",
    "libcublas": "cublas",
    "nvidia-cublas": "cublas",
    "libnvinfer": "tensorrt",
    "nvinfer": "tensorrt",
    "python3": "python",
    "pytorch": "torch",
    "tf": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tf-nightly": "tensorflow",
    "tf-nightly-gpu": "tensorflow",
    "jaxlib": "jax",
    "ort": "onnxruntime-gpu",
    "flash-attention": "flash-attn",
    "triton-inference-server": "tritonserver",
}
"""Other names that mean a component."""

PACKAGE_ALIASES: dict[str, str] = {
    "cntk-gpu": "cntk",
    "cognitive-toolkit": "cntk",
    "holoscan-sdk": "holoscan",
    "arnold-gpu": "arnold",
    "nv-caffe": "nvcaffe",
    "nvidia-caffe": "nvcaffe",
    "opendronemap": "odm",
    "qe-gpu": "quantum-espresso",
    "mitsuba3": "mitsuba",
    "libva-nvidia-driver": "nvidia-vaapi-driver",
    "handbrakecli": "handbrake",
    "handbrake-cli": "handbrake",
    "obs": "obs-studio",
    "nvencc64": "nvencc",
    "rigaya-nvenc": "nvencc",
    "libgpuarray": "pygpu",
    "immich": "immich-machine-learning",
    "isaacsim": "isaac-sim",
    "isaaclab": "isaac-lab",
    "isaacgym": "isaac-gym",
    "deepstream-sdk": "deepstream",
    "tei": "text-embeddings-inference",
    "mistral-rs": "mistralrs",
    "mistralrs-cuda": "mistralrs",
    "tabbyml": "tabby",
    "local-ai": "localai",
    "tao-toolkit": "nvidia-tao",
    "aphrodite": "aphrodite-engine",
    "ont-bonito": "bonito",
    "rtorch": "r-torch",
    "torch-r": "r-torch",
    "oobabooga": "text-generation-webui",
    "textgen-webui": "text-generation-webui",
    "forge": "stable-diffusion-webui-forge",
    "sd-webui-forge": "stable-diffusion-webui-forge",
    "automatic1111": "stable-diffusion-webui",
    "a1111": "stable-diffusion-webui",
    "sd-next": "sdnext",
    "faster-whisper-server": "speaches",
    "infinity": "infinity-emb",
    "tch-rs": "tch",
    "torch-sys": "tch",
    "vsmlrt": "vs-mlrt",
    "carla-simulator": "carla",
    "kohya": "kohya-ss",
    "easydiffusion": "easy-diffusion",
    "stableswarmui": "swarmui",
    "stabilitymatrix": "stability-matrix",
    "rvc-webui": "rvc",
    "retrieval-based-voice-conversion-webui": "rvc",
    "fastchat": "fschat",
    "piper": "piper-tts",
    "t2v-transformers-models": "t2v-transformers",
    "const-me-whisper": "whisper-desktop",
    "candle-core": "candle",
    "burn-cuda": "burn",
    "riva-asr-nim": "nim-riva",
    "riva-nmt-nim": "nim-riva",
    "maxine-bnr": "nim-maxine-bnr",
    "genmol-nim": "nim-genmol",
    "maxine-video-effects": "maxine-vfx",
    "nvidia-vfx": "maxine-vfx",
    "maxine-audio-effects": "maxine-afx",
    "openai-whisper-asr-webservice": "whisper-asr-webservice",
    "nvidia-riva": "riva",
    "riva-speech": "riva",
    "w-okada-voice-changer": "voice-changer",
    "subtitleedit": "subtitle-edit",
    "chat-with-rtx": "chatrtx",
    "jan-ai": "jan",
    "sd-cpp": "stable-diffusion-cpp",
    "lorax-server": "lorax",
    "real-esrgan-ncnn-vulkan": "realesrgan-ncnn-vulkan",
    "nim": "nim-llm",
    "nvidia-nim": "nim-llm",
    "cosmos-nim": "nim-cosmos",
    "maniskill": "mani-skill",
    "cutorch": "torch7",
    "lua-torch": "torch7",
    "xmr-stak-nvidia": "xmr-stak",
    "nv-codec-headers": "video-codec-sdk",
    "nvenc": "video-codec-sdk",
    "llama-factory": "llamafactory",
}
"""Other names that mean a package or a program."""

NOT_ON_INDEX: tuple[str, ...] = (
    "cuda",
    "cudart",
    "cuda-runtime",
    "cudatoolkit",
    "pytorch-cuda",
    "cudnn",
    "nccl",
    "cublas",
    "nvinfer",
    "pytorch",
    "tf",
    "tensorflow-gpu",
    "jaxlib",
    "ort",
    "onnxruntime",
    "gcc",
    "clang",
    "msvc",
    "glibc",
    "cxx",
)
"""Names of components that are other packages, stubs or parts on the index."""

CONDA: dict[str, str] = {
    "cudatoolkit": "cuda",
    "cuda-version": "cuda",
    "pytorch-cuda": "cuda",
    "cuda-cudart": "cuda",
    "cuda-runtime": "cuda",
    "cuda-toolkit": "cuda",
    "libcudnn": "cudnn",
    "libcublas": "cublas",
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "libtorch": "torch",
    "tensorflow-gpu": "tensorflow",
    "onnxruntime": "onnxruntime-gpu",
    "cupy-core": "cupy",
}
"""Names on channels of conda, where they are not the component's."""

LIBRARIES: dict[str, str] = {
    "libcudart": "cuda",
    "libcudnn": "cudnn",
    "libnccl": "nccl",
    "libcublas": "cublas",
    "libnvinfer": "tensorrt",
}
"""File names of libraries up to ``.so``."""

DLLS: dict[str, str] = {
    "cudart64": "cuda",
    "cudnn64": "cudnn",
    "cublas64": "cublas",
    "nvinfer": "tensorrt",
}
"""File names of libraries of Windows up to the version: ``cudart64_12.dll``."""

FOLDERS: dict[str, str] = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jaxlib": "jax",
    "onnxruntime": "onnxruntime-gpu",
    "vllm": "vllm",
    "cupy": "cupy",
    "cupy_backends": "cupy",
    "transformer_engine": "transformer-engine",
    "flash_attn": "flash-attn",
}
"""Folders of site-packages that hold a component's files."""

BUILT_PER_CUDA: tuple[str, ...] = (
    "cudnn",
    "nccl",
    "tensorrt",
)
"""Components of which a version has a build for each CUDA."""

META: tuple[str, ...] = (
    "tensorrt",
    "transformer-engine",
)
"""Components whose package brings nothing but the one for a CUDA."""

CUDA_BY_PLUGIN: tuple[str, ...] = ("jax",)
"""Components whose own package has no CUDA."""

NEEDS_URL: tuple[str, ...] = (
    "driver",
    "tritonserver",
    "gcc",
    "clang",
    "msvc",
    "glibc",
    "cxx",
)
"""Components that no name alone identifies."""
