"""Continuous integration: workflows for GitHub and GitLab, and variables that limit instructions.

One runner stands for several processors: each job of a matrix limits the instructions that the
libraries take. ``python -m probe.lock.workflow avx2`` prints the variables, a line each.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from probe.errors import InputError, one_of
from probe.lock.conditions import limits

LEVELS = ("native", "avx2", "sse41")
"""Instruction sets of a matrix: all that the runner has, and two that every x86-64 runner has."""

GITHUB = """\
# Written by `probe setup github`. Checks that results keep their bits (bits.lock) under several
# instruction sets on one runner. Conditions without an entry are unknown and fail nothing.
name: bits
on: [push, pull_request]
permissions:
  contents: read
  security-events: write # annotations of changed checks
jobs:
  bits:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        isa: [{levels}]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "{python}"
      - name: Install
        run: python -m pip install -e . pytest probe-numerics
      - name: Limit instructions
        run: python -m probe.lock.workflow ${{{{ matrix.isa }}}} >> "$GITHUB_ENV"
      - name: Check bits
        run: >-
          python -m pytest --bits-why=here --bits-report=markdown=bits-report.md
          --bits-report=sarif=bits-report.sarif
      - name: Summary
        if: always()
        run: test ! -f bits-report.md || cat bits-report.md >> "$GITHUB_STEP_SUMMARY"
      - name: Annotate
        if: always() && hashFiles('bits-report.sarif') != ''
        uses: github/codeql-action/upload-sarif@v3
        with:
          sarif_file: bits-report.sarif
          category: bits-${{{{ matrix.isa }}}}
"""

GITLAB = """\
# Written by `probe setup gitlab`. Include it: `include: [{{local: .gitlab/bits.yml}}]`. Checks that
# results keep their bits (bits.lock) under several instruction sets on one runner.
bits:
  image: python:{python}
  parallel:
    matrix:
      - ISA: [{levels}]
  script:
    - python -m pip install -e . pytest probe-numerics
    - python -m probe.lock.workflow "$ISA" --shell > .bits.env
    - set -a; . ./.bits.env; set +a
    - >-
      python -m pytest --bits-why=here --junitxml=junit.xml
      --bits-report=markdown=bits-report.md --bits-report=sarif=bits-report.sarif
  artifacts:
    when: always
    paths: [bits-report.md, bits-report.sarif]
    reports:
      junit: junit.xml
"""

SERVICES = {
    "github": (".github/workflows/bits.yml", GITHUB),
    "gitlab": (".gitlab/bits.yml", GITLAB),
}
"""Service -> the file that is written, and its text."""


def write(service: str, folder: Path) -> Path:
    """Writes a service's workflow below ``folder``. InputError: unknown, or there already."""
    if service not in SERVICES:
        raise InputError("service", service, "there is no such service", one_of(service, SERVICES))
    name, text = SERVICES[service]
    path = folder / name
    if path.exists():
        raise InputError("file", name, "it exists already", "remove it first, or edit it")
    python = "{}.{}".format(*sys.version_info)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(levels=", ".join(LEVELS), python=python), encoding="utf-8")
    return path


def variables(level: str) -> dict[str, str]:
    """Returns the variables that limit all libraries to an instruction set. InputError."""
    if level not in LEVELS:
        raise InputError("isa", level, "there is no such limit", one_of(level, LEVELS))
    return {} if level == "native" else {k: str(one) for k, one in limits(level).items()}


if __name__ == "__main__":
    try:
        found = variables(sys.argv[1] if len(sys.argv) > 1 else "native")
    except InputError as error:
        sys.exit(f"probe: {error}")
    for name, value in found.items():
        # GitHub's file of variables takes lines as they are, a shell needs quotes
        print(f"{name}={shlex.quote(value) if '--shell' in sys.argv else value}")
