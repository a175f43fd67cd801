#!/usr/bin/env python3
# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a wheel of the Python package and of what a build tree has for it.

libzpp_rt and libzpp_xla are needed where rewritten steps run, zpp-opt and
zpp-bundle where they are compiled; the latter two need LLVM's libraries on the
machine. libzpp_xla works with the JAX whose headers it was compiled with and
with later ones. Prints the wheel's path.

A wheel is a zip file with three files about itself (packaging.python.org,
"Binary distribution format"): no tools but Python's own are needed.
"""

import argparse
import base64
import hashlib
import pathlib
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TAG = "py3-none-linux_x86_64"
#: In the wheel, in the build tree, needed.
FILES = [
    ("zpp/lib/libzpp_rt.so", "lib/libzpp_rt.so", True),
    ("zpp/lib/libzpp_xla.so", "lib/libzpp_xla.so", True),
    ("zpp/bin/zpp-opt", "bin/zpp-opt", False),
    ("zpp/bin/zpp-bundle", "bin/zpp-bundle", False),
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--output", type=pathlib.Path,
                        help="folder for the wheel (default: BUILD/wheel)")
    arguments = parser.parse_args()
    print(make(arguments.build, arguments.output or arguments.build / "wheel"))


def make(build: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())[
        "project"]
    name = f"{project['name']}-{project['version']}"
    package = ROOT / "python"
    contents = [(str(path.relative_to(package)), path)
                for path in sorted(package.glob("zpp/**/*"))
                if path.is_file() and path.suffix != ".pyc"]
    for target, source, is_needed in FILES:
        if (build / source).is_file():
            contents.append((target, build / source))
        elif is_needed:
            raise SystemExit(f"expected {build / source}, but got no such file; "
                             f"build it (make build)")
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"{name}-{TAG}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        record = []

        def add(target: str, data: bytes, mode: int = 0o644):
            # No time of today: the same input makes the same wheel.
            entry = zipfile.ZipInfo(target)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
            record.append(
                f"{target},sha256={digest.decode().rstrip('=')},{len(data)}")

        for target, source in contents:
            add(target, source.read_bytes(),
                0o755 if target.startswith("zpp/bin/") else 0o644)
        about = f"{name}.dist-info"
        add(f"{about}/METADATA", metadata(project).encode())
        add(f"{about}/WHEEL", (
            f"Wheel-Version: 1.0\nGenerator: zpp\nRoot-Is-Purelib: false\n"
            f"Tag: {TAG}\n").encode())
        add(f"{about}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
        record.append(f"{about}/RECORD,,\n")
        archive.writestr(zipfile.ZipInfo(f"{about}/RECORD"), "\n".join(record))
    return wheel


def metadata(project: dict) -> str:
    lines = [
        "Metadata-Version: 2.4", f"Name: {project['name']}",
        f"Version: {project['version']}", f"Summary: {project['description']}",
        f"License-Expression: {project['license']['text']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {need}" for need in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need}; extra == '{extra}'"
                  for need in needs]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
