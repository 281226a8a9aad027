"""Write an ONNX file without the onnx package, which server images do not have.

Source: onnx.proto of ONNX 1.8 and the encoding of Protocol Buffers. Comments name the fields.
"""

import struct

_FLOAT = 1
_IR, _OPSET = 7, 13


def clipped_products(layers, width, most):
    """Return a network of products with square matrices, clipped between layers.

    Args:
        layers: weights of each layer, row by row.
        width: width of the matrices.
        most: limit of the clip, ``-most .. most``.

    Returns:
        The file's bytes: input ``x`` and output ``y``, fp32, batch x width.
    """
    nodes, tensors = [], [_tensor("least", [], [-most]), _tensor("most", [], [most])]
    given = "x"
    for number, weights in enumerate(layers):
        last = number == len(layers) - 1
        tensors.append(_tensor(f"w{number}", [width, width], weights))
        summed = "y" if last else f"s{number}"
        nodes.append(_node("MatMul", [given, f"w{number}"], summed))
        if not last:
            given = f"c{number}"
            nodes.append(_node("Clip", [summed, "least", "most"], given))
    graph = b"".join(
        [_part(1, node) for node in nodes]  # node
        + [_part(2, b"canary")]  # name
        + [_part(5, tensor) for tensor in tensors]  # initializer
        + [_part(11, _value("x", width)), _part(12, _value("y", width))]  # input, output
    )
    # ir_version, producer_name, graph, opset_import with its version
    parts = _number(1, _IR), _part(2, b"compatgate"), _part(7, graph)
    return b"".join(parts) + _part(8, _number(2, _OPSET))


def _node(kind, inputs, output):
    # input, output, name, op_type
    given = b"".join(_part(1, name.encode()) for name in inputs)
    return given + _part(2, output.encode()) + _part(3, output.encode()) + _part(4, kind.encode())


def _tensor(name, shape, values):
    # dims, data_type, name, raw_data
    dims = b"".join(_number(1, extent) for extent in shape)
    raw = struct.pack(f"<{len(values)}f", *values)
    return dims + _number(2, _FLOAT) + _part(8, name.encode()) + _part(9, raw)


def _value(name, width):
    # dim_param for the batch, dim_value for the width; shape of a tensor_type of a type
    shape = _part(1, _part(2, b"batch")) + _part(1, _number(1, width))
    kind = _part(1, _number(1, _FLOAT) + _part(2, shape))
    return _part(1, name.encode()) + _part(2, kind)


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
