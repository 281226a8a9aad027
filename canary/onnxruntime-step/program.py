"""Run a network in ONNX Runtime: results against fp64, speed, and whether it runs on the GPU."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_onnx as onnx  # noqa: E402
import canary_program as program  # noqa: E402

PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}


def main():
    """Load the network, time it with its data on the device, and check what was timed last."""
    options = program.options(__doc__)
    provider = PROVIDERS[options.device]
    sessions, made = [], []

    def start(runtime):
        import canary_step

        made.append(canary_step.Step(options))
        sessions.append(runtime.InferenceSession(_file(made[0]), providers=[provider]))

    runtime = canary_env.framework(options, "onnxruntime-gpu", "onnxruntime", start)
    session, data = sessions[0], made[0]
    # Where a provider does not start, the runtime takes the CPU without an error.
    placed = session.get_providers()[0]
    say.check(
        "placed", placed == provider, f"{placed}; offered: {runtime.get_available_providers()}"
    )
    if placed != provider:
        return
    binding = session.io_binding()
    images = data.images.transpose(0, 3, 1, 2).copy()
    binding.bind_ortvalue_input(
        "x", runtime.OrtValue.ortvalue_from_numpy(images, options.device, 0)
    )
    binding.bind_output("y", options.device)

    def run():
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    data.time("step", run, options)
    data.check("right", [binding.copy_outputs_to_cpu()[0]])


def _file(data):
    """Return the forward part of the step as ONNX: its images have channels first."""
    batch, side, _, channels = data.images.shape
    kernel, (_, outputs) = data.kernel.transpose(3, 2, 0, 1).copy(), data.matrix.shape
    tensors = [
        onnx.tensor("kernel", kernel.shape, kernel.tobytes()),
        onnx.tensor("matrix", data.matrix.shape, data.matrix.tobytes()),
    ]
    nodes = [
        onnx.node("Conv", ["x", "kernel"], "inner", pads=[1, 1, 1, 1]),
        onnx.node("Tanh", ["inner"], "bent"),
        onnx.node("Transpose", ["bent"], "rows", perm=[0, 2, 3, 1]),
        onnx.node("MatMul", ["rows", "matrix"], "y"),
    ]
    result = [batch, side, side, outputs]
    return onnx.model(nodes, tensors, [batch, channels, side, side], result)


if __name__ == "__main__":
    program.start(main)
