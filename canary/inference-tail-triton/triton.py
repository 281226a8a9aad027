"""Run Triton Inference Server as a child process, and query it over HTTP on the loopback address.

Source: KServe's "Open Inference Protocol" (v2) with Triton's extension for binary tensors.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time

from network import QUESTIONS, packed

NAME = "canary"
PATIENCE = 240
"""Seconds until it must be ready: the first start loads every library of its backends."""
_LENGTH = "Inference-Header-Content-Length"
_CONFIG = """name: "{name}"
backend: "onnxruntime"
max_batch_size: 0
input [{{ name: "x", data_type: TYPE_FP32, dims: [ -1, {width} ] }}]
output [{{ name: "y", data_type: TYPE_FP32, dims: [ -1, {width} ] }}]
instance_group [{{ count: 2, kind: {kind} }}]
"""


class Server(contextlib.ExitStack):
    """Server process that ends with the block.

    Args:
        folder: writable folder for the models.
    """

    def __init__(self, folder):
        super().__init__()
        self._folder = folder
        self.port = 0

    def offer(self, network, on_gpu):
        """Write a model to the folder."""
        version = os.path.join(self._folder, NAME, "1")
        os.makedirs(version)
        with open(os.path.join(version, "model.onnx"), "wb") as file:
            file.write(network.onnx())
        kind = "KIND_GPU" if on_gpu else "KIND_CPU"
        with open(os.path.join(self._folder, NAME, "config.pbtxt"), "w", encoding="ascii") as file:
            file.write(_CONFIG.format(name=NAME, width=network.width, kind=kind))

    def start(self):
        """Start the server and wait until it is ready.

        Returns:
            Its process id, and the version that it states.

        Raises:
            RuntimeError: it ended, or was not ready in time.
        """
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = ["tritonserver", f"--model-repository={self._folder}"]
        command += ["--http-address=127.0.0.1", f"--http-port={self.port}"]
        command += ["--allow-grpc=false", "--allow-metrics=false"]
        # Send its log to standard error; standard output is for the protocol.
        process = subprocess.Popen(command, stdout=2)  # noqa: S603 - fixed arguments
        self.callback(_end, process)
        end = time.monotonic() + PATIENCE
        while not self._ready():
            if process.poll() is not None:
                raise RuntimeError(f"tritonserver ended with status {process.returncode}")
            if time.monotonic() > end:
                raise RuntimeError(f"tritonserver is not ready after {PATIENCE} s")
            time.sleep(0.2)
        status, _, content = exchange(self.connection(), "GET", "/v2")
        stated = json.loads(content).get("version") if status == 200 else None
        return process.pid, {"tritonserver": stated} if stated else {}

    def connection(self):
        """Open a connection for one client."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def _ready(self):
        try:
            return exchange(self.connection(), "GET", f"/v2/models/{NAME}/ready")[0] == 200
        except OSError:
            return False


class Asked:
    """The model from the clients' point of view.

    Attributes:
        all, wrong: number of answers so far, and of wrong ones.
    """

    def __init__(self, server, network):
        self._server, self._here = server, threading.local()
        self._bodies = [_request(question) for question in network.questions]
        self._right = [packed(answer) for answer in network.answers]
        self.all = self.wrong = 0

    @contextlib.contextmanager
    def client(self):
        """Open a client's persistent connection."""
        with contextlib.closing(self._server.connection()) as self._here.connection:
            yield

    def answer(self, number):
        """Ask a question, and return the answer's bytes.

        Raises:
            RuntimeError: the server answers with an error.
        """
        head, body = self._bodies[number % QUESTIONS]
        path, headers = f"/v2/models/{NAME}/infer", {_LENGTH: str(len(head))}
        found = exchange(self._here.connection, "POST", path, head + body, headers)
        status, length, content = found
        if status != 200:
            raise RuntimeError(f"tritonserver answers {status}: {content[:300]!r}")
        return content[length:]

    def keep(self, number, answer):
        """Compare an answer with the expected one."""
        self.all += 1
        self.wrong += answer != self._right[number % QUESTIONS]


def exchange(connection, method, path, body=None, headers=None):
    """Return status, length of the response's JSON header, and the body."""
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    return response.status, int(response.getheader(_LENGTH) or 0), response.read()


def _request(question):
    body = packed(question)
    given = {"name": "x", "shape": [1, len(question)], "datatype": "FP32"}
    given["parameters"] = {"binary_data_size": len(body)}
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    return json.dumps({"inputs": [given], "outputs": [wanted]}).encode(), body


def _end(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
