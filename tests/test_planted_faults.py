"""The table of planted faults fits the code, and every day runs the tests that notice them."""

import ast
import importlib.util
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
specification = importlib.util.spec_from_file_location("planted", TESTS / "planted_faults.py")
planted = importlib.util.module_from_spec(specification)
specification.loader.exec_module(planted)


def test_every_fault_can_be_planted():
    assert len(planted.FAULTS) >= 40
    for fault in planted.FAULTS:
        text = (TESTS.parent / "tf_transformer" / fault.file).read_text("utf-8")
        assert ast.dump(ast.parse(fault.planted(text))) != ast.dump(ast.parse(text)), fault.old


def test_whatever_the_date_every_fault_is_noticed(request):
    if request.config.args != request.config.getini("testpaths"):
        pytest.skip("runs with all tests")
    run = {item.nodeid for item in request.session.items}
    assert {f"tests/{fault.test}" for fault in planted.FAULTS} <= run
