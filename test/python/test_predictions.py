# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/plan_check.py and bench/paper_tables.py: what they read and count. That
the compiler can do what they ask for is in test_plan.py."""

import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import paper_tables  # noqa: E402
import plan_check  # noqa: E402
from lab import bars  # noqa: E402

PAGE = (ROOT / "docs" / "performance.md").read_text()


def test_every_table_of_the_page_is_read():
    for heading, number, _, wanted in plan_check.TABLES:
        found = plan_check.read_table(PAGE, heading, number, wanted)
        assert set(found) == set(wanted)
        for step, times in found.items():
            assert times, step
            assert set(times) <= set(next(
                found[step] for step, options in wanted.items()
                if options is None))
    rate, latency = plan_check.read_exchange(PAGE)
    assert 40 < rate < 100 and 100 < latency < 500
    for per_node in (1, 2):
        assert 50 < plan_check.measured_nvlink(PAGE, per_node) < 70


def test_a_row_that_is_gone_is_an_error():
    with pytest.raises(SystemExit, match="expected 'qwZ 2' below"):
        plan_check.read_table(PAGE, "Each technique alone", 0, {"qwZ 2": None})


def test_order_counts_what_the_measurement_tells_apart():
    def row(measured, predicted):
        return {"table": "t", "link": "l", "measured": measured,
                "predicted": predicted}

    rows = [row(100, 100), row(50, 60), row(51, 50), row(20, 70)]
    # 50 and 51 are alike; 20 is predicted above both.
    assert plan_check.count_order(rows) == (2, 5)


def test_lines_are_solved():
    assert plan_check.solve(lambda x: 3 * x + 2, 1, 17) == pytest.approx(5)


def test_shapes_have_the_sizes_of_the_paper():
    for size, (layers, width) in paper_tables.SHAPES.items():
        weights = 12 * layers * width**2 + 51200 * width
        assert weights / 1e9 == pytest.approx(float(size[:-1]), rel=0.05), size
        assert width % 128 == 0


def test_memory_is_that_of_16_bytes_per_weight():
    report = {"time": {"state_bytes": 1200}, "total": {"secondary_bytes": 50}}
    assert paper_tables.memory(report) == 1650


def test_bars():
    root = xml.etree.ElementTree.fromstring(bars.draw(
        "a < b", {"one": {"x": 1.0, "y": 2.0}, "two": {"y": 3.0}}, "ms"))
    words = [element.text for element in root.iter()]
    assert {"a < b", "one", "two", "x", "y", "3 ms"} <= set(words)
