# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods of training, as written and rewritten (program_methods.py)."""

import program_methods as methods
import programs
import pytest

pytestmark = pytest.mark.compiler


def program(name, is_jitted=False):
    method = methods.METHODS[name]
    state = method.state()
    return programs.Program(method.step_of, state, methods.specs_of(state),
                            is_jitted)


@pytest.mark.parametrize("name", methods.METHODS)
def test_roles(name):
    assert programs.compared(program(name), 0, trains=False).wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    name for name, method in methods.METHODS.items() if method.trains])
def test_training(name):
    assert programs.compared(program(name), 0, trains=True).wrong == []


#: Those of whose step XLA makes other collectives than the manual one has: of factors,
#: of gradients that are compared, of statistics, rates, correlations, and a state.
PARTITIONED = ("psgd", "surgery", "ppo", "meta_sgd", "twins", "recurrent")


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTITIONED)
def test_partitioned(name):
    assert programs.compared(program(name, True), 0, trains=True).wrong == []
