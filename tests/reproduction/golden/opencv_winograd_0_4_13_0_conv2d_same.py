"""OpenCV 4.13.0: conv2d gives different bits at length 10 and at length 12.

conv2d 3x3, 1 -> 1, stride 2x2, same, length 10 against 12, float32, on opencv,winograd=0.
Outputs are compared where both sides read the same inputs with the same weights.

Needs numpy and opencv-python-headless. Exit status: 1 they differ, 0 they don't, 2 it can't run.
"""

import platform
import sys

try:
    import cv2
    import numpy as np
except ImportError as error:
    print("can't run: {}".format(error))
    sys.exit(2)


# numbers (6ffd08): in shared.py
# x is -0.6796448, -1.3555155, -0.7314526, 0.1003452, 1.0765023, 0.76513386, 0.9733352, ...
x = numbers(
    "-0x1.5bfa68p-1 -0x1.5b031p+0 -0x1.7680f4p-1 0x1.9b0392p-4 0x1.1395a8p+0 0x1.87bfap-1 "
    "0x1.f258fep-1 0x1.fb6b52p-2 0x1.0807bp-2 -0x1.6fb0aap+0 0x1.56f352p-2 0x1.351eccp-1 "
    "-0x1.2400dep-1 0x1.31e28ap+0 0x1.7d0e9cp+0 -0x1.7acc66p+0 -0x1.5a4ffp-3 -0x1.f23cap-1 "
    "-0x1.c6b042p-2 -0x1.8d52c6p-2 -0x1.a5aca2p+0 0x1.65f29ap+0 -0x1.d39ed4p-1 -0x1.4fd2d8p-1 "
    "0x1.7ab2fap-2 0x1.665bf4p-1 -0x1.cfd07ep-2 -0x1.810bdep-1 0x1.8d8cccp-3 -0x1.0c7eccp+1 "
    "-0x1.67282cp+0 -0x1.bf10b2p-7 -0x1.53741ap-3 0x1.2fab48p-1 -0x1.502bb6p-2 -0x1.428e6p-1",
    1,
    3,
    12,
    1,
)
# w is 1.7839365, -0.0018027397, -1.4139723, 0.39215022, -1.6258708, -0.8564328, 1.3981478, ...
w = numbers(
    "0x1.c8b01p+0 -0x1.d893dp-10 -0x1.69fa16p+0 0x1.918fd4p-2 -0x1.a03912p+0 -0x1.b67e5cp-1 "
    "0x1.65ed04p+0 -0x1.4bf798p+0 0x1.9bc654p-2",
    3,
    3,
    1,
    1,
)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:, :, 0:4], np.s_[:, :, 0:4]),
]


def compute(x, w):
    """The outputs, channels last."""
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    prototxt = """
    input: "x"
    input_shape { dim: 1 dim: 1 dim: 3 dim: 10 }
    layer { name: "y" type: "Convolution" bottom: "x" top: "y"
      convolution_param {
        num_output: 1 bias_term: false group: 1 kernel_h: 3 kernel_w: 3 stride_h: 2
        stride_w: 2 pad_h: 1 pad_w: 2
      }
    }
    """
    net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))
    net.enableWinograd(False)
    w = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))
    net.getLayer("y").blobs = [w]
    net.setInput(x)
    y = net.forward()
    y = y[:, :, :, 1:6]
    return np.moveaxis(y, 1, -1)


def compute_right(x, w):
    """The outputs, channels last."""
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    prototxt = """
    input: "x"
    input_shape { dim: 1 dim: 1 dim: 3 dim: 12 }
    layer { name: "y" type: "Convolution" bottom: "x" top: "y"
      convolution_param {
        num_output: 1 bias_term: false group: 1 kernel_h: 3 kernel_w: 3 stride_h: 2
        stride_w: 2 pad_h: 1 pad_w: 2
      }
    }
    """
    net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))
    net.enableWinograd(False)
    w = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))
    net.getLayer("y").blobs = [w]
    net.setInput(x)
    y = net.forward()
    y = y[:, :, :, 1:7]
    return np.moveaxis(y, 1, -1)


# processor (c27d30): in shared.py
# bits (593c87): in shared.py
# ordered (3fa860): in shared.py
# text (5ab459): in shared.py
# listed (0938a2): in shared.py
# compare (84dc64): in shared.py


def main():
    """The exit status."""
    python, numpy = platform.python_version(), np.__version__
    print("OpenCV {}".format(cv2.__version__))
    print("NumPy {}, Python {}".format(numpy, python))
    print("{} {}".format(platform.machine(), processor()))
    print("left: length 10; right: length 12")
    one = compute(np.ascontiguousarray(x[:, :, :10]), w)
    two = compute_right(x, w)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py
