"""Small models that oracles ask about."""

import numpy as np

rng = np.random.default_rng(0)
FIRST, SECOND = (rng.standard_normal(n).astype(np.float32) for n in ((96, 40), (40, 5)))


def numbers(x):
    return np.maximum(x @ FIRST, np.float32(0)) @ SECOND


def __getattr__(name):
    import torch

    nn = torch.nn
    torch.manual_seed(0)

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.again = nn.Conv2d(8, 8, 3, padding=1)
            self.dense = nn.Linear(8, 5)

        def forward(self, x):
            x = torch.relu(self.norm(self.stem(x)))
            x = torch.relu(x + self.again(x))
            return self.dense(x.mean((2, 3))).softmax(-1)

    if name == "residual":
        return Residual().eval()
    if name == "chain":
        first, second = nn.Conv1d(3, 8, 5, padding=2), nn.Conv1d(8, 4, 3, padding=1)
        return nn.Sequential(first, nn.ReLU(), second).eval()
    raise AttributeError(name)
