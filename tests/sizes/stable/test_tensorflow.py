"""The prefix-stable convolution in TensorFlow, in functions and compiled."""

import pytest

from probe import Case
from probe.case.ulp import equal
from tests.sizes.stable.test_convolution import Library, words

pytestmark = pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("shape", [[1, 24, 16], [None, None, 16]], ids=["known", "open"])
def test_a_tf_function_gives_the_eager_bits(shape):
    """Also where its shapes are known, which makes TensorFlow rewrite chains of additions."""
    library = Library("tensorflow")
    from probe.sizes.stable.tensorflow import conv

    tf, case = library.library, Case("conv1d", 5, 16, 8, 24, bias="normal")
    x, w, b = library.operands(case)
    eager = conv(x, w, b, **words(case)).numpy()
    traced = tf.function(
        lambda x: conv(x, w, b, **words(case)), input_signature=[tf.TensorSpec(shape)]
    )
    assert equal(traced(x).numpy(), eager, "float32")


@pytest.mark.slow
def test_in_float64_a_compiler_moves_no_bit():
    """XLA fuses multiplications with additions; products of float32 are exact in float64."""
    library = Library("tensorflow")
    case = Case("conv1d", 3, 16, 8, 24)
    x, w, b = library.operands(case)

    def run(x):
        return library.conv(case, x, w, b, accumulate="float64")

    compiled = library.library.function(run, jit_compile=True)
    assert equal(compiled(x).numpy(), run(x).numpy(), "float32")
