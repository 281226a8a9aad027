"""Do a training step in TensorFlow: results against fp64, speed, and whether it runs on the GPU."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Trace the step, time it, and check what was timed last."""
    options = program.options(__doc__)
    tf = canary_env.framework(
        options, "tensorflow", "tensorflow", lambda module: module.constant(1.0) + 1.0
    )
    import canary_step

    data = canary_step.Step(options)
    images, wanted = tf.constant(data.images), tf.constant(data.wanted)
    kernel, matrix = tf.Variable(data.kernel), tf.Variable(data.matrix)
    place = images.device.rpartition("device:")[2].split(":")[0]
    say.check("placed", place == ("GPU" if options.device == "cuda" else "CPU"), f"on {place}")

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            inner = tf.tanh(tf.nn.conv2d(images, kernel, 1, "SAME"))
            outputs = tf.reshape(inner, (-1, matrix.shape[0])) @ matrix
            loss = tf.reduce_sum((outputs - wanted) ** 2) / 2
        gradients = tape.gradient(loss, [kernel, matrix])
        # One number that needs all results, to wait for.
        last = tf.add_n([tf.reduce_max(part) for part in (outputs, *gradients)])
        return last, outputs, *gradients

    def wait():
        last, *results = step()
        last.numpy()
        return results

    data.check("right", [part.numpy() for part in data.time("step", wait, options)])


if __name__ == "__main__":
    program.start(main)
