"""Write an ONNX file without the onnx package, which server images do not have.

Source: onnx.proto of ONNX 1.8 and the encoding of Protocol Buffers. Comments name the fields.
"""

_FLOAT, _INTS = 1, 7
_IR, _OPSET = 7, 13


def convolutions(weights, channels, side, batch):
    """Return a network of convolutions of 3 x 3, each clipped at zero and added to its input.

    Args:
        weights: of each convolution, bytes of fp32: output channel, input channel, row, column.
        channels: number of channels, the same in each layer.
        side: height and width.
        batch: number of images, fixed.

    Returns:
        The file's bytes: input ``x`` and output ``y``, fp32, batch x channels x side x side.
    """
    nodes, tensors, given = [], [], "x"
    for number, raw in enumerate(weights):
        last = number == len(weights) - 1
        tensors.append(_tensor(f"w{number}", [channels, channels, 3, 3], raw))
        pads = _ints("pads", [1, 1, 1, 1])
        nodes.append(_node("Conv", [given, f"w{number}"], f"c{number}", pads))
        nodes.append(_node("Relu", [f"c{number}"], f"r{number}"))
        result = "y" if last else f"s{number}"
        nodes.append(_node("Add", [given, f"r{number}"], result))
        given = result
    shape = [batch, channels, side, side]
    graph = b"".join(
        [_part(1, node) for node in nodes]  # node
        + [_part(2, b"canary")]  # name
        + [_part(5, tensor) for tensor in tensors]  # initializer
        + [_part(11, _value("x", shape)), _part(12, _value("y", shape))]  # input, output
    )
    # ir_version, producer_name, graph, opset_import with its version
    parts = _number(1, _IR), _part(2, b"compatgate"), _part(7, graph)
    return b"".join(parts) + _part(8, _number(2, _OPSET))


def _node(kind, inputs, output, attribute=b""):
    # input, output, name, op_type, attribute
    given = b"".join(_part(1, name.encode()) for name in inputs)
    named = _part(2, output.encode()) + _part(3, output.encode()) + _part(4, kind.encode())
    return given + named + (_part(5, attribute) if attribute else b"")


def _ints(name, values):
    # name, ints, type
    numbers = b"".join(_number(8, value) for value in values)
    return _part(1, name.encode()) + numbers + _number(20, _INTS)


def _tensor(name, shape, raw):
    # dims, data_type, name, raw_data
    dims = b"".join(_number(1, extent) for extent in shape)
    return dims + _number(2, _FLOAT) + _part(8, name.encode()) + _part(9, raw)


def _value(name, shape):
    # name, type with the tensor_type's elem_type and the dim_value of each dim of its shape
    dims = b"".join(_part(1, _number(1, extent)) for extent in shape)
    return _part(1, name.encode()) + _part(2, _part(1, _number(1, _FLOAT) + _part(2, dims)))


def _number(field, value):
    return _varint(field << 3) + _varint(value)


def _part(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
