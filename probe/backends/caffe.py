"""A Caffe model as its users have it: the layers as text (prototxt), the weights as bytes.

The bytes of a ``.caffemodel`` are a protocol buffer, of which these few fields are written here
(``caffe.proto`` of BVLC/caffe): ``NetParameter.layer`` 100, ``LayerParameter.name`` 1, ``type`` 2,
``blobs`` 7, ``BlobProto.data`` 5 and ``shape`` 7, ``BlobShape.dim`` 1.
"""

import numpy as np


class Value:
    """A blob's name, its shape (batch, channels, *spatial), and which of its layer's outputs it is.

    A net gives the first output of its last layer.
    """

    def __init__(self, name, shape, output=0):
        self.name, self.shape, self.output = name, tuple(shape), output


class Model:
    """A model that is written layer by layer, of one input ``x``.

    ``constants``: arrays that a user gives once, as inputs beside x, by name.
    """

    def __init__(self, shape):
        self.x = Value("x", shape)
        self.constants, self.lines, self.weights = {}, [], b""

    def constant(self, array):
        """A Value that does not change."""
        name = "constant%d" % len(self.constants)
        self.constants[name] = array
        return Value(name, array.shape)

    def layer(self, kind, bottoms, shape, fields="", blobs=(), of=(0, 1)):
        """The Value of one layer's output. ``fields``: as text, of the layer's parameters.

        ``of``: which of how many outputs it is.
        """
        name = "%s%d" % (kind.lower(), len(self.lines))
        tops = [name] if of[1] == 1 else ["%s_%d" % (name, top) for top in range(of[1])]
        self.lines.append(text(name, kind, [one.name for one in bottoms], tops, fields))
        if blobs:
            self.weights += field(100, layer_weights(name, kind, blobs))
        return Value(tops[of[0]], shape, of[0])

    def prototxt(self):
        """The text of the model."""
        inputs = {"x": self.x.shape}
        inputs.update((name, array.shape) for name, array in self.constants.items())
        return "".join(head(name, shape) for name, shape in inputs.items()) + "".join(self.lines)

    def caffemodel(self):
        """The bytes of the weights."""
        return self.weights


def head(name, shape):
    """An input of a prototxt."""
    dims = " ".join("dim: %d" % size for size in shape)
    return 'input: "%s"\ninput_shape { %s }\n' % (name, dims)


def text(name, kind, bottoms, tops, fields):
    """A layer of a prototxt."""
    found = 'layer { name: "%s" type: "%s"' % (name, kind)
    found += "".join(' bottom: "%s"' % one for one in bottoms)
    found += "".join(' top: "%s"' % one for one in tops)
    return found + ("\n  %s }\n" % fields if fields else " }\n")


def caffemodel(name, kind, blobs):
    """The bytes of the weights of a model of one layer."""
    return field(100, layer_weights(name, kind, blobs))


def layer_weights(name, kind, blobs):
    """A ``LayerParameter`` with its float32 blobs."""
    found = field(1, name.encode()) + field(2, kind.encode())
    for blob in blobs:
        dims = b"".join(varint(size) for size in blob.shape)
        data = np.ascontiguousarray(blob, "<f4").tobytes()
        found += field(7, field(7, field(1, dims)) + field(5, data))
    return found


def field(number, content):
    """A field of bytes: its key, its length, its content."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number):
    """A whole number in groups of 7 bits, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
