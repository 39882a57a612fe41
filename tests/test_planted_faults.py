"""The table of planted faults fits the code: each fault changes one place and leaves Python."""

import ast
import importlib.util
from pathlib import Path

TESTS = Path(__file__).parent
specification = importlib.util.spec_from_file_location("planted", TESTS / "planted_faults.py")
planted = importlib.util.module_from_spec(specification)
specification.loader.exec_module(planted)


def test_every_fault_can_be_planted():
    assert len(planted.FAULTS) >= 40
    for fault in planted.FAULTS:
        text = (TESTS.parent / "tf_transformer" / fault.file).read_text("utf-8")
        faulty = planted.planted(fault, text)
        assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(text)), fault.old
        assert (TESTS / fault.tests).exists(), fault.tests
