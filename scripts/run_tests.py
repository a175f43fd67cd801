#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the test suites of a build tree and counts over all of them.

The last line of the output is "N passed, N failed"; the exit status is 1 if
anything failed. A suite that breaks before it can report counts as one failure.
"""

import argparse
import dataclasses
import glob
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def run(command, report, environment):
    """Runs `command` and returns its status and whether it wrote `report`."""
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    print("+", *command, flush=True)
    status = subprocess.run(
        [str(word) for word in command], env={**os.environ, **environment}, cwd=ROOT
    ).returncode
    return status, report.exists()


def checked(counts, status, written):
    """`counts`, with a failure for a suite that broke without saying where."""
    if not written or (status != 0 and counts.failed == 0):
        counts.failed += 1
    return counts


def run_compiler(build, jobs):
    """lit: FileCheck tests, GoogleTest binaries and the package test."""
    report = build / "test-results" / "lit.json"
    options = f"-j{jobs} --succinct --verbose --output={report}"
    status, written = run(
        ["cmake", "--build", build, "--parallel", jobs, "--target", "check-zpp"],
        report,
        {"LIT_OPTS": f"{os.environ.get('LIT_OPTS', '')} {options}"},
    )
    counts = Counts()
    if written:
        for test in json.loads(report.read_text())["tests"]:
            if test["code"] in ("PASS", "XFAIL", "FLAKYPASS"):
                counts.passed += 1
            elif test["code"] in ("UNSUPPORTED", "SKIPPED", "EXCLUDED"):
                counts.skipped += 1
            else:
                counts.failed += 1
    return checked(counts, status, written)


def run_python(build, jobs):
    """pytest: the JAX front end, end to end on virtual CPU devices."""
    del jobs  # The tests of one JAX process share its virtual devices.
    report = build / "test-results" / "pytest.xml"
    status, written = run(
        [sys.executable, "-m", "pytest", "test/python"]
        + ["-p", "no:cacheprovider", "--durations=5", f"--junitxml={report}"],
        report,
        {
            "ZPP_OPT": str(build / "bin" / "zpp-opt"),
            "ZPP_XLA": str(build / "lib" / "libzpp_xla.so"),
            "PYTHONPATH": str(ROOT / "python"),
        },
    )
    counts = Counts()
    if written:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            failed = int(suite.get("failures")) + int(suite.get("errors"))
            counts.failed += failed
            counts.skipped += int(suite.get("skipped"))
            counts.passed += int(suite.get("tests")) - failed
        counts.passed -= counts.skipped
    return checked(counts, status, written)


def cuda_summary(build):
    """What the build compiled of CUDA, most of which runs on no other machine."""
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("ZPP_CUDA_STATUS:"):
            status = line.partition("=")[2]
            if not status.startswith("compiled"):
                return status
            if glob.glob("/dev/nvidia[0-9]*"):
                return f"{status}; `make gpu-test` runs all of it"
            return f"{status}; not run: no GPU"
    return "not compiled"


SUITES = {"compiler": run_compiler, "python": run_python}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--suite", choices=SUITES, help="default: all of them")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    results = {
        name: run_suite(build, arguments.jobs)
        for name, run_suite in SUITES.items()
        if arguments.suite in (None, name)
    }
    total = Counts()
    print()
    for name, counts in results.items():
        total.add(counts)
        print(
            f"{name}: {counts.passed} passed, {counts.failed} failed, "
            f"{counts.skipped} skipped"
        )
    print(f"CUDA: {cuda_summary(build)}")
    print(f"{total.passed} passed, {total.failed} failed")
    # Nothing run is not a success.
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
