# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The start of a Python process under `zpp run`, or with ZPP_DEEPSPEED.

`begin` runs before the program does: from zpp.pth, which a wheel brings, or from
`startup/sitecustomize.py`, which `zpp run` puts into PYTHONPATH. Without ZPP_RUN
and ZPP_DEEPSPEED in the environment it does nothing. With them, zpp is installed as
soon as the program has imported JAX, or DeepSpeed.
"""

import functools
import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

#: The variable with the words of `zpp run`, such as "mesh=node:2 weights=i8".
VARIABLE = "ZPP_RUN"
#: The variable that says "1" where DeepSpeed is to run on zpp's exchanges.
DEEPSPEED = "ZPP_DEEPSPEED"


@functools.cache
def begin() -> None:
    """Does so once per process."""
    if words := os.environ.get(VARIABLE):
        _install_with("jax", lambda: install_from(words))
    if os.environ.get(DEEPSPEED, "0") != "0":
        _install_with("deepspeed", _install_in_deepspeed)


def _install_with(name: str, install: Callable[[], None]) -> None:
    """Installs zpp once a module is there."""
    if name in sys.modules:
        install()
    else:
        sys.meta_path.insert(0, _After(name, install))


def _install_in_deepspeed() -> None:
    if os.environ[DEEPSPEED] != "1":
        raise ValueError(f"{DEEPSPEED}: expected 1 or 0, but got "
                         f"{os.environ[DEEPSPEED]!r}")
    import zpp.deepspeed
    zpp.deepspeed.install()


class _After:
    """A finder that installs zpp once a module is there: it stays until the module was
    executed, as programs look modules up that they do not import yet."""

    def __init__(self, name: str, install: Callable[[], None]):
        self._name = name
        self._install = install

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        specs = (finder.find_spec(name, path, target) for finder in [*sys.meta_path]
                 if finder is not self and hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader, load = spec.loader, spec.loader.exec_module

        def load_and_install(module):
            load(module)
            # Several look-ups may return the same loader, which may have other
            # modules, too.
            if module.__name__ != self._name or self not in sys.meta_path:
                return
            sys.meta_path.remove(self)
            # Such an attribute of the loader hides the method of its class.
            del loader.exec_module  # type: ignore[method-assign]
            self._install()

        loader.exec_module = load_and_install  # type: ignore[method-assign]
        return spec


def install_from(words: str) -> None:
    """Installs zpp with the words of the environment. Where this JAX has no
    hook, the program goes on without zpp, and a line says so."""
    import zpp
    try:
        zpp.install(**parse_words(words))
    except ValueError as error:
        raise ValueError(f"{VARIABLE}: {error}") from None
    except RuntimeError as error:
        print(f"zpp: nothing is rewritten: {error}", file=sys.stderr, flush=True)


def parse_words(text: str) -> dict[str, Any]:
    """Arguments of `zpp.install`: "mesh=node:2 tuning.block=64 report=FILE"."""
    from zpp._options import read_words
    words = shlex.split(text)
    own = [word for word in words if word.startswith(("options=", "report="))]
    return {**dict(word.split("=", 1) for word in own),
            **read_words(word for word in words if word not in own)}
