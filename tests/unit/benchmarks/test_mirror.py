"""The pure parts of `make bench-mirror`: cells and levels fit each other, sums, the file of figures, table, drawing."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.benchmarks.mirror import data
from tests.benchmarks.mirror.bulk import figures
from tests.benchmarks.mirror.cells import BARE, MIRROR, MM2, chosen, every, grid
from tests.benchmarks.mirror.faults import thinned
from tests.benchmarks.mirror.levels import LEVELS, Level, verdict
from tests.benchmarks.mirror.plot import lag_plot
from tests.benchmarks.mirror.results import Results
from tests.benchmarks.mirror.sums import Sample, percentile, slope
from tests.benchmarks.mirror.table import SHOWN, WORDS, rows, table

NAMES = [cell.name for cell in grid()]


def test_each_cell_has_a_name_of_its_own_and_each_level_a_cell_and_words() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {level.cell for level in LEVELS} <= set(NAMES)
    assert {level.figure for level in LEVELS} <= set(WORDS)
    assert {level.beside[1] for level in LEVELS if level.beside} <= set(NAMES)


def test_each_cell_can_be_measured_from_the_targets_side() -> None:
    names = [cell.name for cell in every()]
    assert len(set(names)) == len(names)
    pulls = {cell.name for cell in every() if cell.is_pull}
    assert pulls == {f"pull-{cell.name}" for cell in grid() if not cell.is_pull and cell.family != "tcp"}
    assert all(cell.family in SHOWN for cell in every())


def test_both_sides_fit_into_an_hour() -> None:
    assert sum(cell.estimate_s * len(cell.sides) for cell in grid()) <= 3600


def test_cells_are_chosen_by_patterns_in_the_grids_order() -> None:
    assert [cell.name for cell in chosen(grid(), "alarms@1M,bulk-a@*")] == [
        name for name in NAMES if name == "alarms@1M" or name.startswith("bulk-a@")
    ]
    with pytest.raises(ValueError, match="no cell is called 'bulk-z'"):
        chosen(grid(), "bulk-a@*,bulk-z")


def test_a_slope_passes_between_the_steps_of_batches() -> None:
    steps = [(at / 10, float(at // 10 * 100)) for at in range(200)]
    assert slope(steps) == pytest.approx(100, rel=0.02)
    assert slope(steps[:1]) == 0
    assert slope([(1.0, 2.0), (1.0, 3.0)]) == 0


def test_figures_of_a_steady_stream() -> None:
    samples = [Sample(at, at * 1000, at * 20_000, at * 19_000) for at in range(10)]
    found = figures(samples, 100.0, 1_000_000)
    assert found["records_per_s"] == pytest.approx(1000)
    assert found["wire_per_payload"] == pytest.approx(0.2)
    assert found["link_used"] == pytest.approx(0.152)
    assert "link_used" not in figures(samples, 100.0, 0)


def test_a_percentile_counts_what_never_came() -> None:
    assert percentile([], 50) == math.inf
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([*map(float, range(98)), math.inf, math.inf], 98) == 97
    assert percentile([*map(float, range(98)), math.inf, math.inf], 99) == math.inf


def test_a_lag_is_thinned_to_what_can_be_seen() -> None:
    assert [at for at, _ in thinned([(number / 20, number) for number in range(40)])] == [0, 0.5, 1, 1.5]


def test_readings_are_the_same_each_time_and_carry_their_number() -> None:
    first, again = (data.reading(17, random.Random(3)) for _ in range(2))
    assert first == again
    assert data.sequence_of(first) == 17
    assert data.sequence_of(data.document(9, random.Random(3))) == 9
    assert 90 <= len(first) <= 104
    assert 950 <= len(data.document(9, random.Random(3))) <= 1050
    with pytest.raises(ValueError, match="no sequence number"):
        data.sequence_of(b"{}")


def test_what_is_in_the_file_is_not_measured_again_but_for_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "new/mirror.json"
    results = Results(path)
    assert not results.has("bulk-a@lan", MIRROR)
    results.put("bulk-a@lan", MIRROR, {"p99_s": math.inf, "records_per_s": 3.0}, took_s=1.5)
    results.put("bulk-a@lan", MM2, {"failed": "it is dead"})
    again = Results(path)
    assert again.has("bulk-a@lan", MIRROR)
    assert again.figures("bulk-a@lan", MIRROR) == {"p99_s": math.inf, "records_per_s": 3.0}
    assert not again.has("bulk-a@lan", MM2)
    assert again.figures("nowhere", MIRROR) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"medians": {}}'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mirror.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="holds no figures of this benchmark"):
        Results(path)
    assert path.read_text() == text


def test_levels_are_judged_alone_or_beside_another() -> None:
    known = {("x", MIRROR): {"rate": 30.0, "p99_s": math.inf}, ("x", MM2): {"rate": 10.0}, ("tcp", BARE): {}}

    def look(cell: str, side: str) -> dict[str, float]:
        return known.get((cell, side), {})

    assert verdict(Level("x", "rate", 30, is_most=True), look).is_met
    assert not verdict(Level("x", "p99_s", 2, is_most=True), look).is_met
    assert verdict(Level("x", "rate", 3, is_most=False, beside=(MM2, "x")), look).is_met
    assert verdict(Level("x", "rate", 3, is_most=False, beside=(BARE, "tcp")), look).is_met is None
    assert verdict(Level("y", "rate", 3, is_most=False), look).is_met is None


def test_the_table_says_what_was_measured_and_what_is_met() -> None:
    cells = chosen(grid(), "alarms@1M,first@lan,kills@10M")
    known = {
        ("alarms@1M", MIRROR): {"p99_s": math.inf, "never_came": 12, "rss_mb": 50.0},
        ("first@lan", MIRROR): {"first_s": 0.5},
        ("first@lan", MM2): {"first_s": 17.5, "failed": "it is dead"},
    }

    def look(cell: str, side: str) -> dict[str, float | str]:
        return known.get((cell, side), {})

    found = {row.measured: row[1:] for row in rows(cells, look)}
    assert found["alarms@1M, age p99, s"] == ("never", "–", "≤ 2", "NO")
    assert found["alarms@1M, RSS MB"] == ("50", "–", "≤ 64", "yes")
    assert found["first@lan, first record, s"] == ("0.5", "17.5", "≤ 1", "yes")
    assert found["first@lan, MirrorMaker 2 failed"] == ("", "failed", "", "")
    assert not any(name.startswith("kills") for name in found)
    lines = table(cells, look).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].startswith("| measured ")


def test_the_drawing_is_an_image_with_a_line_for_each() -> None:
    lag = [(-70.0, 10.0), (0.0, 12_000.0), (20.0, 10.0)]
    root = ET.fromstring(lag_plot("Lag <1>", {"edge-mirror": lag, "MirrorMaker 2": lag}, 60.0))
    assert len([each for each in root if each.tag.endswith("polyline")]) == 2
    with pytest.raises(ValueError, match="no lag"):
        lag_plot("nothing", {}, 60.0)
