"""Recorded models, which tests of replays share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe.recording.recording import Run, record_run
from probe.recording.subject import open_model
from tests.recording.replayable import MODELS

Made = tuple[Any, dict[str, np.ndarray], Run]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    known: dict[str, Made] = {}

    def of(name: str) -> Made:
        if name not in known:
            function = MODELS[name][0]
            folder = [tmp_path_factory.mktemp("onnx")] if name == "onnx" else []
            model, inputs = function(*folder)
            known[name] = model, inputs, record_run(open_model(model).recorder(inputs))
        return known[name]

    return of
