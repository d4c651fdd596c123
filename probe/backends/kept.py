"""What is made for a key once, and kept while it is among the last few that were asked for."""

from collections import OrderedDict


class Kept:
    """``make(key)``, remembered; the least recently used of more than ``most`` is dropped."""

    def __init__(self, make, most=8):
        self.make, self.most, self.made = make, most, OrderedDict()

    def __call__(self, key):
        if key not in self.made:
            if len(self.made) == self.most:
                self.made.popitem(last=False)
            self.made[key] = self.make(key)
        self.made.move_to_end(key)
        return self.made[key]
