"""OpenCV 4.13.0: max_pool1d gives different bits at length 10 and at length 12.

max_pool1d 3, 1, length 10 against 12, float32, on opencv.
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
# x is -0.5040862, -0.13806365, 1.3672454, -1.4315643, -0.3249628, 0.45373553, -0.16374984, ...
x = numbers(
    "-0x1.021796p-1 -0x1.1ac11ep-3 0x1.5e03ccp+0 -0x1.6e7bp+0 -0x1.4cc30cp-2 0x1.d0a00cp-2 "
    "-0x1.4f5c14p-3 -0x1.ee391cp-1 -0x1.1d7cfep-2 0x1.146f54p+1 0x1.211f9p-1 0x1.d6bb34p-3",
    1,
    12,
    1,
)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:8]),
]


def compute(x):
    """The outputs, channels last."""
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    x = x[:, :, None]
    prototxt = """
    input: "x"
    input_shape { dim: 1 dim: 1 dim: 1 dim: 10 }
    layer { name: "y" type: "Pooling" bottom: "x" top: "y"
      pooling_param {
        pool: MAX kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 1 pad_h: 0
        pad_w: 0
      }
    }
    """
    net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))
    net.setInput(x)
    y = net.forward()
    y = y[:, :, 0, :]
    return np.moveaxis(y, 1, -1)


def compute_right(x):
    """The outputs, channels last."""
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    x = x[:, :, None]
    prototxt = """
    input: "x"
    input_shape { dim: 1 dim: 1 dim: 1 dim: 12 }
    layer { name: "y" type: "Pooling" bottom: "x" top: "y"
      pooling_param {
        pool: MAX kernel_h: 1 kernel_w: 3 stride_h: 1 stride_w: 1 pad_h: 0
        pad_w: 0
      }
    }
    """
    net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))
    net.setInput(x)
    y = net.forward()
    y = y[:, :, 0, :]
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
    one = compute(np.ascontiguousarray(x[:, :10]))
    two = compute_right(x)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py
