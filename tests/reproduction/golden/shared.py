# __name__ (ffba77): in shared.py
if __name__ == "__main__":
    try:
        status = main()
    except Exception as error:
        print("can't run: {}: {}".format(type(error).__name__, error))
        status = 2
    sys.exit(status)


# bits (206489): in shared.py
def bits(value):
    """The bit pattern of a number."""
    return int(value.view("u8"))


# bits (593c87): in shared.py
def bits(value):
    """The bit pattern of a number."""
    return int(value.view("u4"))


# bits (bb6790): in shared.py
def bits(value):
    """The bit pattern of a number."""
    return int(value.view("u4")) >> 16


# compare (84dc64): in shared.py
def compare(one, two):
    """Prints the outputs that differ: how many do, of how many, and the largest distance."""
    counted, differing, largest = 0, 0, 0
    for ours, theirs in COMPARED:
        (here, a), (there, b) = listed(one, ours), listed(two, theirs)
        counted += len(a)
        different = (a != b) & ~((a != a) & (b != b))
        for k in np.flatnonzero(different):
            ulp = ordered(b[k]) - ordered(a[k])
            differing, largest = differing + 1, max(largest, abs(ulp))
            if differing <= 20:
                values = here[k], text(a[k]), there[k], text(b[k]), ulp
                print("left{} = {}, right{} = {}, {:+d} ulp".format(*values))
    return counted, differing, largest


# listed (0938a2): in shared.py
def listed(y, part):
    """Places and values of a part of an output."""
    places = np.moveaxis(np.indices(y.shape), 0, -1)[part]
    return places.reshape(-1, y.ndim).tolist(), y[part].reshape(-1)


# numbers (3c1aa9): in shared.py
def numbers(text, *shape):
    """An array from exact hexadecimal numbers."""
    return np.array([float.fromhex(one) for one in text.split()], np.float64).reshape(shape)


# numbers (6ffd08): in shared.py
def numbers(text, *shape):
    """An array from exact hexadecimal numbers."""
    return np.array([float.fromhex(one) for one in text.split()], np.float32).reshape(shape)


# ordered (3fa860): in shared.py
def ordered(value):
    """The number's place among all of its format: neighbours are 1 apart."""
    number = bits(value)
    return number if number < 1 << 31 else (1 << 31) - number


# ordered (e3c16d): in shared.py
def ordered(value):
    """The number's place among all of its format: neighbours are 1 apart."""
    number = bits(value)
    return number if number < 1 << 63 else (1 << 63) - number


# ordered (ffb963): in shared.py
def ordered(value):
    """The number's place among all of its format: neighbours are 1 apart."""
    number = bits(value)
    return number if number < 1 << 15 else (1 << 15) - number


# processor (c27d30): in shared.py
def processor():
    """The processor's name."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return (names or [platform.processor() or "unknown"])[0]


# text (1aa8bc): in shared.py
def text(value):
    """A number and its bits."""
    return "{!s} (0x{:016x})".format(value, bits(value))


# text (5ab459): in shared.py
def text(value):
    """A number and its bits."""
    return "{!s} (0x{:08x})".format(value, bits(value))


# text (73c036): in shared.py
def text(value):
    """A number and its bits."""
    return "{!s} (0x{:04x})".format(value, bits(value))
