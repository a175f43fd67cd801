# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The platform in the name of a wheel, from the symbols of its binaries."""

import pathlib
import platform
import shutil
import subprocess

import pytest
import wheel_platform

C = """
#include <stdio.h>
int main(void) { return puts("zpp") < 0; }
"""


@pytest.mark.parametrize("needs, policy", [
    ({}, "manylinux_2_28"),
    ({"GLIBC": (2, 17)}, "manylinux_2_28"),
    ({"GLIBC": (2, 29)}, "manylinux_2_31"),
    ({"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}, "manylinux_2_34"),
    ({"GLIBC": (2, 17), "GLIBCXX": (3, 4, 30)}, "manylinux_2_35"),
    ({"GLIBC": (2, 36)}, "manylinux_2_39"),
    ({"GLIBC": (2, 34), "CXXABI": (1, 3, 14)}, "manylinux_2_39"),
])
def test_policies(needs, policy):
    assert wheel_platform.find_policy(needs) == policy


def test_no_policy():
    with pytest.raises(ValueError, match="expected symbols that manylinux_2_39 "
                       "allows, but got GLIBC_2.99"):
        wheel_platform.find_policy({"GLIBC": (2, 99)})


def test_newest_is_by_number():
    assert wheel_platform.newest(
        ["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.4", "GLIBCXX_3.4.29",
         "GLIBC_PRIVATE"]) == {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}


def test_binaries(tmp_path):
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("needs cc")
    (tmp_path / "main.c").write_text(C)
    subprocess.run([compiler, "main.c", "-o", "program"], cwd=tmp_path, check=True)
    program = tmp_path / "program"
    assert wheel_platform.find_binaries(tmp_path) == [program]
    assert "GLIBC_2.2.5" in set(wheel_platform.read_needs(program)) or (
        platform.machine() != "x86_64")
    assert "puts" in set(wheel_platform.read_undefined(program))
    assert "main" not in set(wheel_platform.read_undefined(program))
    name = wheel_platform.name_platform(tmp_path)
    assert name.startswith("manylinux_2_") and name.endswith(platform.machine())


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="expected binaries in '.*', but got "
                       "none"):
        wheel_platform.name_platform(tmp_path)
    script = pathlib.Path(wheel_platform.__file__)
    done = subprocess.run([script, tmp_path], text=True, capture_output=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: expected binaries in")
