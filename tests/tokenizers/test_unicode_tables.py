import numpy as np
import pytest
from make_unicode_tables import CLASSES, PATH, make_tables

from tf_transformer.tokenizers.graph import texts


@pytest.mark.slow
def test_the_tables_are_what_the_installed_package_says():
    tables = make_tables()
    with np.load(PATH) as file:
        assert set(file) == set(tables)
        for name, values in tables.items():
            np.testing.assert_array_equal(file[name], values, err_msg=name)


def test_the_classes_have_the_names_they_were_asked_by():
    assert tuple(texts._CLASSES) == CLASSES
    chinese = texts.characters_of("chinese")
    assert chinese[ord("我")] and not chinese[ord("か")]
