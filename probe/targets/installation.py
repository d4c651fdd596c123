"""Provides what a target needs to run here: its release, or an emulated processor.

An environment is made in place and marked when the target has answered through the worker; what
fails on the way is taken away, and what a killed process left is taken away by the next try.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.targets import backends, machine, target
from probe.targets.launch import TIME_LIMIT, WORKER, Session
from probe.targets.progress import Tell
from probe.targets.runtimes import environments, packages
from probe.targets.runtimes.environments import Environment, Runtime
from probe.targets.runtimes.packages import Failed
from probe.targets.target import Target

STEPS = 3
# What a new environment has to compute, 7 everywhere: the first one that its library has.
CHECKS = (
    Case(op="conv2d", kernel="1x3", length=8, operands="ones", weights=(1.0, 2.0, 4.0)),
    Case(op="matmul", in_channels=3, length=8, operands="ones", weights=(1.0, 2.0, 4.0)),
)


@dataclass(frozen=True)
class Installed:
    """What was done. ``environment`` is None where the target uses this interpreter."""

    target: Target
    environment: Environment | None
    facts: dict[str, Any]
    seconds: float
    already: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.text,
            "environment": self.environment.name if self.environment else None,
            "already": self.already,
            "seconds": self.seconds,
            **self.facts,
        }


def install_target(where: Target, tell: Tell | None = None, root: Path | None = None) -> Installed:
    """Provides what ``where`` needs, and checks that it answers.

    ``root``: an arm64 root folder to use instead of one made of Debian packages. ``tell`` gets
    steps done, steps in all, and what is being done. Costs minutes at most, 0.2 to 1.5 GB of disk.
    InputError: nothing is to be installed for such a target. TargetError ``unavailable``: it
    failed; the message says why in one line.
    """
    started = time.monotonic()
    report = tell or (lambda done, total, text: None)
    try:
        environment, facts, already = _provide(where, report, root)
    except Failed as error:
        why = machine.publishable(str(error))
        raise TargetError(where.text, "unavailable", why, error.printed) from None
    except OSError as error:
        why = f"its folder in the cache can't be used: {error.strerror or error}"
        why += "; PROBE_CACHE can name a different cache"
        raise TargetError(where.text, "unavailable", why) from None
    return Installed(where, environment, facts, round(time.monotonic() - started, 1), already)


def _provide(
    where: Target, tell: Tell, root: Path | None
) -> tuple[Environment | None, dict[str, Any], bool]:
    device = target.emulated_processor(where)
    if device is not None and (why := environments.emulation_missing(device)):
        raise Failed(why)
    own = target.installed_version(backends.get(where.name))
    arm64 = device == "arm64"
    if not arm64 and where.version in (None, own):
        if where.device == "cpu" and where.version is None:
            todo = f"write which, such as {where.name}=={own or '1.2.1'}"
            raise InputError("target", where.text, "it does not name a release to install", todo)
        if why := target.why_unavailable(where):
            raise Failed(why)
        tell(2, STEPS, f"asking {where.text}")
        return None, _answers(where, target.target_runtime(where)), device is None
    version = where.version or own
    if version is None:
        todo = f"name one, {where.name}==1.2.3@arm64"
        raise InputError(
            "target", where.text, f"no {where.name} is here to take the version of", todo
        )
    recipe = packages.release_recipe(where.name, version, arm64)
    folder = environments.folder_of(where.name, version, arm64)
    with environments.locked(folder):
        environment = environments.find_environment(where.name, version, arm64)
        if environment is None:
            return *_make_environment(folder, recipe, arm64, root, tell), False
    if device is None or arm64:
        return environment, environment.facts, True
    tell(2, STEPS, f"asking {where.text}")
    return environment, _answers(where, target.target_runtime(where)), True


def _make_environment(
    folder: Path, recipe: packages.Recipe, arm64: bool, root: Path | None, tell: Tell
) -> tuple[Environment, dict[str, Any]]:
    """Returns a new environment; on any failure none."""
    environments.remove_environment(folder)
    named = f"{recipe.library}=={recipe.version}"
    try:
        tell(0, STEPS, "an arm64 root folder" if arm64 else f"Python {recipe.python}")
        if arm64:
            release = packages.make_arm64_environment(packages.provide_sysroot(root), folder)
            tell(1, STEPS, f"{named} for arm64")
            packages.install_for_arm64(
                packages.site_packages(folder, f"python{release}"),
                release,
                [recipe.choices[-1], *recipe.beside],
            )
        else:
            python = packages.find_python(recipe.python)
            if python is None:
                raise Failed(packages.python_missing(recipe.python))
            folder.parent.mkdir(parents=True, exist_ok=True)
            packages.create(folder, python)
            tell(1, STEPS, named)
            packages.install_release(folder, recipe)
        tell(2, STEPS, f"asking {named}")
        ran = environments.in_folder(folder, arm64)
        facts = _answers(Target(recipe.library, recipe.version), ran)
        if not environments.same_release(str(facts.get("library_version")), recipe.version):
            why = f"{facts.get('library_version')} answers in its place"
            raise Failed(f"{named} was installed, but {why}")
        environments.complete(folder, recipe.library, recipe.version, arm64, facts)
    # Ctrl-C too leaves nothing half made
    except BaseException:
        environments.remove_environment(folder)
        raise
    tell(STEPS, STEPS, named)
    environment = environments.read_environment(folder)
    assert environment is not None
    return environment, facts


def _answers(where: Target, ran: Runtime) -> dict[str, Any]:
    """Starts the worker there, which computes one of ``CHECKS``; returns the facts it reports."""
    command = (*ran.command, *WORKER)
    limit = TIME_LIMIT * ran.slower
    try:
        with Session(where, limit, limit, command) as session:
            for check in CHECKS:
                x, w, _ = check.operands()
                try:
                    y = session.request({"do": "run", "spec": check.spec()}, {"x": x, "w": w})[1]
                    break
                except TargetError as error:
                    if error.kind != "unsupported" or check is CHECKS[-1]:
                        raise
            facts = dict(session.facts)
    except TargetError as error:
        raise Failed(f"it was installed, but does not answer: {error.why}", error.stderr) from None
    if not np.array_equal(y["y"], np.full(check.output_shape(), 7.0, np.float32)):
        raise Failed("it was installed, but computes 1 + 2 + 4 wrongly")
    names = ("library", "library_version", "python_version", "numpy_version")
    return {name: facts.get(name) for name in names}


def is_there(where: Target) -> bool:
    return target.why_unavailable(where) is None


def remove_installed(where: Target) -> Environment:
    """Takes a release's environment away. InputError where there is none."""
    own = target.installed_version(backends.get(where.name))
    version, arm64 = where.version or own or "", where.device == "arm64"
    environment = environments.find_environment(where.name, version, arm64)
    if environment is None:
        there = (
            ", ".join(installed.target for installed in environments.installed_environments())
            or "none"
        )
        raise InputError("target", where.text, "it is not installed", f"there are: {there}")
    with environments.locked(environment.folder):
        environments.remove_environment(environment.folder)
    return environment
