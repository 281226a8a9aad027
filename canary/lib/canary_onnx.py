"""Write an ONNX file without the onnx package, which server images do not have.

Source: onnx.proto of ONNX 1.8 and the encoding of Protocol Buffers. Comments name the fields.
Python 3.8 or newer.
"""

_FLOAT, _INTS = 1, 7
_IR, _OPSET = 7, 13


def model(nodes, tensors, given, result):
    """Return the file's bytes.

    Args:
        nodes: of `node`, in order.
        tensors: of `tensor`.
        given: shape of the input ``x``; an extent that is a name is variable.
        result: shape of the output ``y``.
    """
    graph = b"".join(
        [_part(1, each) for each in nodes]  # node
        + [_part(2, b"canary")]  # name
        + [_part(5, each) for each in tensors]  # initializer
        + [_part(11, _value("x", given)), _part(12, _value("y", result))]  # input, output
    )
    # ir_version, producer_name, graph, opset_import with its version
    parts = _number(1, _IR), _part(2, b"compatgate"), _part(7, graph)
    return b"".join(parts) + _part(8, _number(2, _OPSET))


def node(kind, inputs, output, **numbers):
    """Return an operation; attributes are lists of whole numbers."""
    # input, output, name, op_type, attribute
    given = b"".join(_part(1, name.encode()) for name in inputs)
    named = _part(2, output.encode()) + _part(3, output.encode()) + _part(4, kind.encode())
    return given + named + b"".join(_part(5, _ints(*each)) for each in numbers.items())


def tensor(name, shape, raw):
    """Return a constant of fp32 from its bytes."""
    # dims, data_type, name, raw_data
    dims = b"".join(_number(1, extent) for extent in shape)
    return dims + _number(2, _FLOAT) + _part(8, name.encode()) + _part(9, raw)


def _ints(name, values):
    # name, ints, type
    numbers = b"".join(_number(8, value) for value in values)
    return _part(1, name.encode()) + numbers + _number(20, _INTS)


def _value(name, shape):
    # name, type with the tensor_type's elem_type, and dim_param or dim_value of each dim
    dims = b"".join(
        _part(1, _part(2, n.encode()) if isinstance(n, str) else _number(1, n)) for n in shape
    )
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
