# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bench/plan_check.py and bench/paper_tables.py: what they read and count. That
the compiler can do what they ask for is in test_plan.py."""

import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import paper_tables
import plan_check
from lab import bars
from lab.measured import Measured

DATA = Measured()


def test_every_step_that_is_compared_was_measured():
    for table in plan_check.TABLES:
        found = table.times(DATA)
        assert set(found) == set(table.rows)
        base, = (found[step] for step, options in table.rows.items()
                 if options is None)
        for step, times in found.items():
            assert set(times) & set(base), step
    rate, latency = plan_check.read_gather(DATA)
    assert 40 < rate < 100 and 100 < latency < 500
    # NCCL's longer messages.
    faster, shorter = plan_check.read_all_reduce(DATA)
    assert rate < faster < 100 and shorter < latency
    for per_node in (1, 2):
        assert 50 < plan_check.measured_nvlink(DATA, per_node) < 70


def test_what_was_compared_is_recorded():
    """Each of these steps on each link, but those that numbers are fitted to."""
    compared = {(table.name, step, link) for table in plan_check.TABLES
                for step, options in table.rows.items() if options is not None
                for link in table.times(DATA)[step]}
    recorded = [(row["of"], row["step"], row["link"]) for row in DATA.rows("plan-check")]
    assert len(recorded) == len(set(recorded))
    assert set(recorded) <= compared


def test_rows_that_are_not_there_are_errors():
    with pytest.raises(ValueError, match="expected rows of 'techniques' with .*'qwZ 2'"):
        DATA.row("techniques", "qwZ 2")
    with pytest.raises(ValueError, match="expected a time of 'FSDP' .* on 7gbit in measured"):
        DATA.ms("forms", "FSDP", "7gbit")


def test_every_row_is_of_a_set_and_says_where_it_ran():
    for row in DATA._rows:
        about = DATA.sets[row["set"]]
        assert {"title", "date", "commit", "machine"} <= set(about), row["set"]
        for letter in row.get("machines", {}).values():
            assert letter in DATA.machines, row


def test_order_counts_what_the_measurement_tells_apart():
    def row(measured, predicted):
        return {"of": "t", "link": "l", "measured": measured,
                "predicted": predicted}

    rows = [row(100, 100), row(50, 60), row(51, 50), row(20, 70)]
    # 50 and 51 are alike; 20 is predicted above both.
    assert plan_check.count_order(rows) == (2, 5)


def test_the_picture_has_all_rows():
    rows = [{"of": table, "step": step, "link": "nvlink"} for table, step in (
        ("now", "all"), ("then", "all"), ("then", "none"))]
    assert plan_check.labels_of(rows) == [
        "all, NVLink only (now)", "all, NVLink only (then)", "none, NVLink only"]


def test_a_link_is_fitted_to_two_sizes():
    # 2 * 2**20 bytes in 1 ms, 6 * 2**20 bytes in 2.5 ms.
    rate, latency = plan_check.fit_link({1: 1.0, 3: 2.5}, sent=2.0)
    assert rate == pytest.approx(4 * 2**20 * 8 / 1.5e6)
    assert latency == pytest.approx(250)
    assert plan_check.fit_link({1: 1.0, 3: 3.5}, sent=2.0)[1] == 0


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
