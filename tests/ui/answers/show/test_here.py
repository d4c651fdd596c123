"""What is here is shown whole, and as it is."""

import pytest
from rich.console import Console

from probe.ui.answers import doctor
from probe.ui.answers.show import here


@pytest.mark.parametrize("same", [True, False])
def test_a_pip_of_another_python_is_said(monkeypatch, tmp_path, capsys, same):
    """Its packages would not be found: the hint says which Python has to install them."""
    own = tmp_path / "own" / "python"
    monkeypatch.setattr(doctor.sys, "executable", str(own))
    pip = own.parent / "pip" if same else tmp_path / "other" / "pip"
    monkeypatch.setattr(doctor.shutil, "which", lambda name: str(pip))
    assert doctor.pip_of_this_python() == (None if same else f"{own} -m pip")
    lacking = doctor.Check("torch", "missing", "", "targets of torch", "pip install torch")
    Console(width=200).print(
        here.examined(doctor.Examined([lacking], {}, doctor.pip_of_this_python()))
    )
    assert ("belongs to a different Python" in capsys.readouterr().out) is not same
