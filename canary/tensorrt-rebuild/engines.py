"""Build, load and run engines with the image's TensorRT. Needs TensorRT 8.5 or newer."""

import ctypes

import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
_EXPLICIT = "EXPLICIT_BATCH"
"""Flag of releases before 10; later ones know nothing else."""


class DoesNotBuild(Exception):
    """Error: TensorRT refused; the message says what."""


def offers_fp16():
    """Return whether a build can be told to use fp16."""
    return hasattr(trt.BuilderFlag, "FP16")


def build(onnx, fp16):
    """Return the bytes of an engine.

    Args:
        onnx: bytes of the file.
        fp16: allow fp16; else everything is in full fp32, without TF32.

    Raises:
        DoesNotBuild: the parser or the builder refused.
    """
    builder = trt.Builder(LOGGER)
    flag = getattr(trt.NetworkDefinitionCreationFlag, _EXPLICIT, None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = trt.OnnxParser(network, LOGGER)
    if not parser.parse(onnx):
        said = "; ".join(str(parser.get_error(n)) for n in range(parser.num_errors))
        raise DoesNotBuild(f"the parser refuses the ONNX file: {said}"[:400])
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    if fp16:
        config.set_flag(trt.BuilderFlag.FP16)
    made = builder.build_serialized_network(network, config)
    if made is None:
        raise DoesNotBuild("the builder makes no engine; its reasons are in the log")
    return bytes(made)


class Engine:
    """Engine that was loaded from its bytes.

    Args:
        gpu: of `canary_cuda`, whose memory and stream are used.
        plan: bytes of `build`.
        given: input, bytes.

    Raises:
        DoesNotBuild: the bytes cannot be loaded.
    """

    def __init__(self, gpu, plan, given):
        self._gpu, self._size = gpu, len(given)
        self._runtime = trt.Runtime(LOGGER)  # must live as long as the engine
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise DoesNotBuild("the engine cannot be loaded; the reasons are in the log")
        self._context = self._engine.create_execution_context()
        self._memory = {name: gpu.allocate(len(given)) for name in "xy"}
        for name, memory in self._memory.items():
            self._context.set_tensor_address(name, memory.value)
        gpu.upload(self._memory["x"], given)

    def run(self):
        """Start one batch on the stream."""
        if not self._context.execute_async_v3(self._gpu.stream.value):
            raise DoesNotBuild("the engine does not run; the reasons are in the log")

    def result(self):
        """Run one batch, and return its result as bytes."""
        self._gpu.upload(self._memory["y"], bytes(self._size))
        self.run()
        self._gpu.settle()
        return self._gpu.download(self._memory["y"], self._size)

    def free(self):
        """Free the memory of input and output."""
        for memory in self._memory.values():
            self._gpu.free(ctypes.c_uint64(memory.value))
