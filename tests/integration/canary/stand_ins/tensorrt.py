"""Stand-in of TensorRT's Python package: the names that the program uses, and its own reference.

It reads weights and sizes from the ONNX file itself. Results of large networks are zeros. ``FAULT``
of the environment names what is wrong with it.
"""

import array
import ctypes
import os
import pickle

import network

__version__ = os.environ.get("STAND_IN_VERSION", "10.7.0")
FAULT = os.environ.get("STAND_IN_FAULT", "")
_MOST = 4096
"""Largest result that is computed."""
network.LARGE = network.Size(4, 4, 8, 2)  # one that an interpreter can compute


class Logger:
    ERROR = 1

    def __init__(self, least):
        self.least = least


class NetworkDefinitionCreationFlag:
    pass


class BuilderFlag:
    TF32, FP16 = 1, 2


class Builder:
    def __init__(self, logger):
        pass

    def create_network(self, flags):
        assert flags == 0
        return {}

    def create_builder_config(self):
        return Config()

    def build_serialized_network(self, made, config):
        assert config.flags & {BuilderFlag.TF32} == set()
        half = BuilderFlag.FP16 in config.flags
        return None if FAULT == "builder" else pickle.dumps({**made, "half": half})


class Config:
    def __init__(self):
        self.flags = {BuilderFlag.TF32}

    def clear_flag(self, flag):
        self.flags.discard(flag)

    def set_flag(self, flag):
        self.flags.add(flag)


class OnnxParser:
    num_errors = 1

    def __init__(self, made, logger):
        self._made = made

    def parse(self, content):
        graph = _only(content, 7)
        weights = [_only(tensor, 9) for tensor in _all(graph, 5)]
        kind = _only(_only(_only(graph, 11), 2), 1)
        shape = [_only(dim, 1) for dim in _all(_only(kind, 2), 1)]
        self._made.update(weights=weights, shape=shape)
        return FAULT != "parser"

    def get_error(self, number):
        return f"In node {number}: unsupported operator Conv"


class Runtime:
    def __init__(self, logger):
        pass

    def deserialize_cuda_engine(self, plan):
        return Engine(pickle.loads(plan))


class Engine:
    def __init__(self, made):
        self._made = made

    def create_execution_context(self):
        return Context(self._made)


class Context:
    def __init__(self, made):
        self._made, self._places, self._runs = made, {}, 0

    def set_tensor_address(self, name, address):
        self._places[name] = address

    def execute_async_v3(self, stream):
        assert isinstance(stream, int)
        batch, channels, side, _ = self._made["shape"]
        count = batch * channels * side * side
        if count <= _MOST:
            values = self._result(network.Size(0, channels, side, batch), count)
            ctypes.memmove(self._places["y"], values.tobytes(), 4 * count)
        return True

    def _result(self, size, count):
        self._runs += 1
        made = network.Network.__new__(network.Network)
        made.size = size
        made._weights = self._made["weights"]
        made.given = ctypes.string_at(self._places["x"], 4 * count)
        factor = (
            1.001 if FAULT == "coarse" else 1 + (self._runs if FAULT == "unsteady" else 0) * 2**-20
        )
        return array.array("f", [value * factor for value in made.right()])


def _fields(content):
    """Yield the number and value of each field of a message of Protocol Buffers."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(content):
        key = varint()
        value = varint()
        if key & 7 == 2:
            at, value = at + value, content[at : at + value]
        yield key >> 3, value


def _all(content, field):
    return [value for number, value in _fields(content) if number == field]


def _only(content, field):
    (value,) = _all(content, field)
    return value
