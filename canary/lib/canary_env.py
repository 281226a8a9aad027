"""Print the env line of programs that use the CUDA driver alone, or PyTorch, or a server.

Python 3.8 or newer; imports PyTorch only on demand.
"""

import importlib
import importlib.util
import os
import platform
import sys

import canary_conditions
import canary_cuda
import canary_driver
import canary_lines as say
from canary_nvml import NoNvml, Nvml
from canary_program import NoGpu, NothingToTest

# In the repository and in an installation this module is in another folder.
_HERE = os.path.dirname(os.path.abspath(__file__))
_UP = [os.path.join(_HERE, *([os.pardir] * up)) for up in (2, 3)]
sys.path += [os.path.join(_UP[0], "compatgate", "diagnostics"), os.path.join(_UP[1], "diagnostics")]

import loaded  # noqa: E402


def bare(options, **other):
    """Print the env line of a program that calls libraries directly.

    Call it after loading them: versions are those of the libraries in the process.

    Args:
        options: of `canary_program`.
        other: further members.

    Raises:
        NoGpu: ``--device cuda``, and CUDA gives this process no GPU.
    """
    gpus = _gpus(options)
    _say(gpus, {}, {}, {**_beside(gpus), **other})


def server(options, start):
    """Start a server that does the work in another process, and print the env line.

    Args:
        options: of `canary_program`.
        start: called if a usable GPU exists; returns the server's process id, and component to
            version as
            the server states it. Versions of libraries come from their file names.

    Raises:
        NoGpu: ``--device cuda``, and CUDA gives this process no GPU.
    """
    gpus = _gpus(options)
    beside = _beside(gpus)  # the server inherits the binding
    pid, versions = start()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        libraries = loaded.libraries_of(loaded.mapped_files(file.read(loaded.LARGEST_MAPS)))
    _say(gpus, versions, {}, beside, loaded.sort_libraries(libraries))


def torch(options, **other):
    """Import PyTorch, print the env line, and return the device to compute on.

    Returns:
        The module and its device: ``torch.device("cuda", 0)`` or the CPU.

    Raises:
        NoGpu: ``--device cuda``, and CUDA gives this process no GPU.
        NothingToTest: the image has no PyTorch, or one that was built without CUDA.
    """
    gpus = _gpus(options)
    other = {**_beside(gpus), **other}
    if importlib.util.find_spec("torch") is None:
        _say(gpus, {}, {}, other)
        raise NothingToTest(f"{sys.executable} has no PyTorch")
    import torch as module

    on_gpu = options.device == "cuda"
    versions, paths = {"torch": str(module.__version__)}, {"torch": module.__file__}
    if on_gpu and module.version.cuda is None:
        _say(gpus, versions, paths, other)
        raise NothingToTest(f"PyTorch {module.__version__} was built without CUDA")
    if on_gpu:
        module.cuda.init()
        cudnn = (
            module.backends.cudnn.version()
        )  # also loads cuDNN, which otherwise happens at its first use
        versions.update({"cudnn": _dotted(cudnn)} if cudnn else {})
    _say(gpus, versions, paths, other)
    device = module.device("cuda", 0) if on_gpu else module.device("cpu")
    say.proof("torch", lambda a, b: _multiply(module, device, a, b))
    module.manual_seed(options.seed)
    return module, device


def framework(options, component, name, start):
    """Import a framework, start it, print the env line, and return its module.

    Args:
        options: of `canary_program`.
        component: its name in the env line.
        name: of its module.
        start: function of the module that makes it load its libraries.

    Raises:
        NoGpu: ``--device cuda``, and CUDA gives this process no GPU.
        NothingToTest: the image does not have it.
    """
    gpus = _gpus(options)
    beside = _beside(gpus)
    if importlib.util.find_spec(name) is None:
        _say(gpus, {}, {}, beside)
        raise NothingToTest(f"{sys.executable} has no {name}")
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    module = importlib.import_module(name)
    start(module)
    _say(gpus, {component: str(module.__version__)}, {component: module.__file__}, beside)
    return module


def need_distributed(torch, device, gpus=1):
    """Check that torch.distributed and enough GPUs are here.

    Raises:
        NothingToTest: this PyTorch cannot communicate.
        NoGpu: CUDA gives this process fewer GPUs.
    """
    if not torch.distributed.is_available():
        raise NothingToTest(f"PyTorch {torch.__version__} has no torch.distributed")
    if device.type == "cuda" and not torch.distributed.is_nccl_available():
        raise NothingToTest(f"PyTorch {torch.__version__} was built without NCCL")
    if device.type == "cuda" and torch.cuda.device_count() < gpus:
        raise NoGpu(f"{gpus} GPUs are needed, CUDA gives {torch.cuda.device_count()}")


def _multiply(torch, device, a, b):
    first, second = (torch.tensor(rows, dtype=torch.float32, device=device) for rows in (a, b))
    return torch.matmul(first, second).cpu().tolist()


def _gpus(options):
    if options.device == "cpu":
        return []
    found, wrong = canary_cuda.described()
    if wrong or not found:
        raise NoGpu(wrong or "CUDA gives this process none")
    return found


def _beside(gpus):
    """Bind the process and start to watch, before a framework starts threads."""
    affinity, recorded = canary_conditions.bind(gpus), canary_conditions.watch(gpus)
    return {"affinity": affinity, "conditions": recorded}


def _say(gpus, versions, paths, other, every=None):
    every = loaded.loaded_libraries() if every is None else every
    libraries = [lib for lib in every if lib.component != loaded.DRIVER_CUDA]
    everything = {**versions, **loaded.versions(libraries)}
    files = {**loaded.paths(libraries), **paths}
    if os.environ.get("COMPATGATE_INTERPRETER") != "worker":  # the worker's is not under test
        everything["python"], files["python"] = platform.python_version(), sys.executable
    say.env(driver=driver(), gpus=gpus, versions=everything, paths=files, **other)


def _dotted(number):
    """Convert cuDNN's number: ``8907`` is 8.9.7, ``90100`` is 9.1.0."""
    base = 10000 if number >= 90000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def driver():
    """Return the version of the host's driver; None without one."""
    try:
        with Nvml() as nvml:
            return nvml.driver()
    except NoNvml:
        return canary_driver.kernel_module()
