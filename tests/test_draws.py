"""The tests that the short suite draws by the date."""

import datetime
import re
from collections import Counter
from pathlib import Path

import pytest

SLOW, HEAVY, LIGHT = pytest.mark.slow, pytest.mark.one_of(8), pytest.mark.one_of(2)
SIX, COMMANDS = pytest.mark.one_of(6), pytest.mark.one_of(10, "long")
NAMES = [f"layer{n}" for n in range(23)]


class Item:
    """What the draw reads of a test case."""

    def __init__(self, nodeid, *marks):
        self.nodeid, self.path = nodeid, Path(nodeid.partition("::")[0]).absolute()
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self, name):
        return (mark for mark in self.marks if mark.name == name)

    def get_closest_marker(self, name):
        return next(self.iter_markers(name), None)


class Config:
    """A day of the short suite."""

    def __init__(self, day, named):
        self.options, self.hook, self.args = {"draw": str(day), "whole": False}, self, named
        self.getoption = self.options.get

    def pytest_deselected(self, items):
        pass


@pytest.fixture
def draw(request):
    """The ids of the cases that run on a day."""
    plugin = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))

    def draw(items, day, named=()):
        items = list(items)
        first = datetime.date(2026, 11, 28)
        plugin.pytest_collection_modifyitems(Config(first + datetime.timedelta(day), named), items)
        return {item.nodeid for item in items}

    return draw


@pytest.mark.parametrize(
    ("items", "days"),
    [
        ([Item(f"a.py::test[{name}]", SIX) for name in NAMES], 6),
        # Marks of parameters and of the test: two draws, from all cases and from some of them.
        (
            [
                Item(f"a.py::test[{name}]", SIX, LIGHT if n % 3 else HEAVY)
                for n, name in enumerate(NAMES)
            ],
            24,
        ),
        ([Item(f"a.py::test{n}[{name}]", SLOW, SIX) for n in range(4) for name in NAMES], 360),
        ([Item(f"{n}.py::test[{name}]", COMMANDS) for n in range(12) for name in NAMES], 10),
        ([Item(f"{n}.py::test{m}", COMMANDS, SLOW) for n in range(12) for m in range(9)], 600),
    ],
    ids=["one_of", "two marks", "slow", "group", "slow in a group"],
)
def test_every_case_runs_on_some_day(draw, items, days):
    ran = Counter(nodeid for day in range(days) for nodeid in draw(items, day))
    assert ran.keys() == {item.nodeid for item in items}


def test_cases_that_only_the_whole_suite_runs_take_no_turns(draw):
    for day in range(6):
        items = [Item(f"a.py::test[{name}]", SIX) for name in NAMES[:6]]
        items += [Item(f"a.py::test[{name}]", SIX, pytest.mark.whole) for name in NAMES[6:]]
        assert len(draw(items, day) & {item.nodeid for item in items[:6]}) == 1


def test_a_file_that_the_command_names_always_runs(draw):
    items = [Item(f"{n}.py::test[{name}]", COMMANDS) for n in range(12) for name in NAMES]
    for day in range(10):
        ran = draw(items, day, ["3.py", "5.py::test"])
        assert sum(nodeid.startswith(("3.py", "5.py")) for nodeid in ran) == 2 * len(NAMES)
        assert len({nodeid.partition(":")[0] for nodeid in ran}) == 3  # and one of the ten others


def test_tests_with_other_cases_draw_mostly_equal_parameters(draw):
    names = [f"class{n}" for n in range(60)]
    items = [Item(f"a.py::one[{name}]", SIX) for name in names]
    items += [Item(f"a.py::two[{name}]", SIX) for name in names[:40]]
    for day in range(6):
        drawn = [nodeid.partition("[")[2] for nodeid in draw(items, day)]
        assert len(drawn) >= 16 and len(set(drawn)) <= 13


def test_files_of_a_group_take_equal_turns():
    turns = set()
    for path in Path(__file__).parent.rglob("*.py"):
        turns |= set(re.findall(r'^pytestmark.*\bone_of\((\d+), "(\w+)"\)', path.read_text(), re.M))
    groups = [group for _, group in turns]
    assert len(groups) > 5 and sorted(groups) == sorted(set(groups)), turns
