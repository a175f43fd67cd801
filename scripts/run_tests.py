#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the test suites of a build tree side by side and counts over all of them.

Every half minute a line says how far each suite is. What a suite prints goes into
a file in test-results of the build tree; when it ends, so does what failed, to
the terminal. The output ends with the names of all that failed and the line
"N passed, N failed"; the exit status is 1 if anything failed. A suite that breaks
before it can report counts as one failure.
"""

import argparse
import dataclasses
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent

#: Seconds between two lines that say how far the suites are.
BETWEEN_LINES = 30

#: Bytes that XLA's compiled programs may take in the build tree. One run of all
#: tests leaves about 300 MB.
COMPILED = 10**9

#: Characters that are printed of each failure, at most; the file has all of it.
SHOWN = 20000


@dataclasses.dataclass
class Result:
    """Counts of tests, the text of each that failed, and the seconds of each."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    def add_failure(self, name: str, text: str):
        self.failed += 1
        self.failures.append((name, text))


@dataclasses.dataclass
class Suite:
    """A command that writes a report when it ends and a line per test before."""

    name: str
    command: list[str]
    environment: dict[str, str]
    #: The file that it writes at its end.
    report: pathlib.Path
    read_report: Callable[[pathlib.Path], Result]
    #: The file for what it prints.
    log: pathlib.Path
    #: A line of `log` that says that a test has ended, and of how many.
    line: re.Pattern
    #: The line that says how many tests there are.
    total: re.Pattern

    def run(self) -> Result:
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            status = subprocess.run(
                self.command, env={**os.environ, **self.environment}, cwd=ROOT,
                stdout=log, stderr=subprocess.STDOUT).returncode
        result = Result()
        if self.report.exists():
            result = self.read_report(self.report)
        if not self.report.exists() or (status != 0 and not result.failed):
            result.add_failure(
                f"{self.name}: expected status 0 and a report, but got status "
                f"{status}", self.log.read_text(errors="replace"))
        return result

    def progress(self) -> str:
        """How many tests have ended, of how many."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        ended = len(self.line.findall(text))
        totals = self.total.findall(text)
        return f"{self.name} {ended} of {totals[-1] if totals else '?'}"


# -----------------------------------------------------------------------------
# The suites
# -----------------------------------------------------------------------------


def read_lit(report: pathlib.Path) -> Result:
    result = Result()
    for test in json.loads(report.read_text())["tests"]:
        result.seconds[test["name"]] = test["elapsed"]
        if test["code"] in ("PASS", "XFAIL", "FLAKYPASS"):
            result.passed += 1
        elif test["code"] in ("UNSUPPORTED", "SKIPPED", "EXCLUDED"):
            result.skipped += 1
        else:
            result.add_failure(f"{test['name']}: {test['code']}", test["output"])
    return result


def read_pytest(report: pathlib.Path) -> Result:
    result = Result()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        result.seconds[name] = float(case.get("time", 0))
        bad = [child for child in case if child.tag in ("failure", "error")]
        if bad:
            result.add_failure(name, "\n".join(
                child.text or child.get("message") or "" for child in bad))
        elif case.find("skipped") is not None:
            result.skipped += 1
        else:
            result.passed += 1
    return result


def compiler(build: pathlib.Path, jobs: int, everything: bool) -> Suite:
    """lit: FileCheck tests, GoogleTest binaries and the package test."""
    results = build / "test-results"
    report = results / "lit.json"
    options = (f"-j{jobs} --no-progress-bar --show-all --verbose --output={report}"
               f"{' --param slow=1' if everything else ''}")
    return Suite(
        "compiler",
        ["cmake", "--build", str(build), "--target", "check-zpp"],
        {"LIT_OPTS": f"{os.environ.get('LIT_OPTS', '')} {options}"},
        report, read_lit, results / "lit.log",
        line=re.compile(r"^[A-Z]+: zpp\S* :: .* \(\d+ of \d+\)$", re.M),
        total=re.compile(r"^[A-Z]+: zpp\S* :: .* \(\d+ of (\d+)\)$", re.M))


def drop_broken_entries(cache: pathlib.Path) -> None:
    """Removes what has no time of its last use from JAX's cache: JAX cannot write
    beside it. A run that was killed leaves it, and one without a limit of size."""
    for entry in cache.glob("*-cache"):
        if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
            entry.unlink()


def python(build: pathlib.Path, jobs: int, everything: bool) -> Suite:
    """pytest: the JAX front end, end to end. Each of the processes has virtual
    CPU devices of its own, and the tests of a file share what they compile. XLA
    takes most of the time, so what it compiles is kept in the build tree: a later
    run compiles only the programs that have changed."""
    results = build / "test-results"
    report = results / "pytest.xml"
    drop_broken_entries(build / "xla-cache")
    return Suite(
        "python",
        [sys.executable, "-m", "pytest", "test/python", "--verbose",
         # Not those of few tests last, of which some run for long.
         "-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder",
         "-p", "no:cacheprovider",
         "--durations=10", f"--junitxml={report}",
         *([] if everything else ["-m", "not slow"])],
        {"ZPP_OPT": str(build / "bin" / "zpp-opt"),
         "ZPP_XLA": str(build / "lib" / "libzpp_xla.so"),
         "PYTHONPATH": str(ROOT / "python"),
         "JAX_COMPILATION_CACHE_DIR": str(build / "xla-cache"),
         "JAX_COMPILATION_CACHE_MAX_SIZE": str(COMPILED),
         "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"},
        report, read_pytest, results / "pytest.log",
        line=re.compile(r"^\[gw\d+\] \[ *\d+%\] [A-Z]+ ", re.M),
        total=re.compile(r"^\d+ workers \[(\d+) items?\]", re.M))


SUITES = {"compiler": compiler, "python": python}


# -----------------------------------------------------------------------------
# Side by side
# -----------------------------------------------------------------------------


def print_result(suite: Suite, result: Result):
    for name, text in result.failures:
        if len(text) > SHOWN:
            text = f"...\n{text[-SHOWN:]}"
        print(f"\n--- {suite.name}: {name}\n{text.rstrip()}")
    slowest = sorted(result.seconds.items(), key=lambda pair: -pair[1])[:5]
    print(f"\n{suite.name}, the slowest:")
    for name, seconds in slowest:
        print(f"  {seconds:6.1f} s  {name}")


def run_side_by_side(suites: list[Suite]) -> dict[str, Result]:
    results = {}
    lock = threading.Lock()

    def run(suite):
        result = suite.run()
        with lock:
            results[suite.name] = result
            print_result(suite, result)
            sys.stdout.flush()

    threads = [threading.Thread(target=run, args=[suite]) for suite in suites]
    for suite, thread in zip(suites, threads):
        print("+", *suite.command, f"> {suite.log}", flush=True)
        thread.start()
    start = time.monotonic()
    due = BETWEEN_LINES
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(timeout=0.2)
        passed = time.monotonic() - start
        if passed < due:
            continue
        due += BETWEEN_LINES
        with lock:
            print(f"[{passed:4.0f} s]", ", ".join(
                suite.progress() for suite in suites
                if suite.name not in results), flush=True)
    return results


def cuda_summary(build):
    """Says what the build compiled of CUDA, most of which runs on no other machine."""
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("ZPP_CUDA_STATUS:"):
            status = line.partition("=")[2]
            if not status.startswith("compiled"):
                return status
            if glob.glob("/dev/nvidia[0-9]*"):
                return f"{status}; `make gpu-test` runs all of it"
            return f"{status}; not run: no GPU"
    return "not compiled"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--suite", choices=SUITES, help="default: all of them")
    parser.add_argument("--all", action="store_true",
                        help="also the tests that are marked as slow")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    suites = [make(build, arguments.jobs, arguments.all)
              for name, make in SUITES.items()
              if arguments.suite in (None, name)]
    results = run_side_by_side(suites)
    print()
    for name, result in results.items():
        print(f"{name}: {result.passed} passed, {result.failed} failed, "
              f"{result.skipped} skipped")
    print(f"CUDA: {cuda_summary(build)}")
    passed = sum(result.passed for result in results.values())
    failed = sum(result.failed for result in results.values())
    for name, result in results.items():
        for test, _ in result.failures:
            print(f"failed, {name}: {test}")
    print(f"{passed} passed, {failed} failed")
    # Nothing run is not a success.
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
