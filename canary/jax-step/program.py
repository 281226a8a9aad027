"""Do a training step in JAX: results against fp64, speed, and whether it runs on the GPU."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Compile the step, time it, and check what was timed last."""
    options = program.options(__doc__)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = canary_env.framework(options, "jax", "jax", lambda module: module.devices())
    import canary_step
    import jax.numpy as jnp

    place = jax.devices()[0].platform
    say.check("placed", place == ("gpu" if options.device == "cuda" else "cpu"), f"on {place}")
    data = canary_step.Step(options)
    images, wanted = jax.device_put((data.images, data.wanted))
    weights = jax.device_put((data.kernel, data.matrix))

    def loss(weights):
        kernel, matrix = weights
        form = ("NHWC", "HWIO", "NHWC")
        inner = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=form)
        outputs = jnp.tanh(inner).reshape(-1, matrix.shape[0]) @ matrix
        return ((outputs - wanted) ** 2).sum() / 2, outputs

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, outputs), gradients = data.time(
        "step", lambda: jax.block_until_ready(step(weights)), options
    )
    data.check("right", [outputs, *gradients])


if __name__ == "__main__":
    program.start(main)
