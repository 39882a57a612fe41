import subprocess
import sys

import pytest

from tf_transformer.data import load_attributions, load_corpus


@pytest.mark.parametrize("name, size", [("en-zh", 29155), ("en-fr", 25000)])
def test_every_pair_is_whole_and_attributed(name, size):
    pairs, attributions = load_corpus(name), load_attributions(name)
    assert len(pairs) == len(attributions) == size
    assert all(len(pair) == 2 and pair[0].strip() and pair[1].strip() for pair in pairs)
    assert all(text.startswith("CC-BY 2.0 (France) Attribution:") for text in attributions)
    assert all(text.count("#") == 2 for text in attributions)


@pytest.mark.parametrize("name", ["en-zh", "en-fr"])
def test_reverse_name_swaps_the_sides(name):
    reverse = "-".join(reversed(name.split("-")))
    assert load_corpus(reverse) == [(target, source) for source, target in load_corpus(name)]
    assert load_attributions(reverse) == load_attributions(name)


def test_languages_are_on_the_named_sides():
    assert ("Wait!", "等等！") in load_corpus("en-zh")
    assert ("That's always a good sign.", "C'est toujours un bon signe.") in load_corpus("en-fr")


@pytest.mark.parametrize("load", [load_corpus, load_attributions])
def test_unknown_name_lists_the_names(load):
    with pytest.raises(ValueError, match=r"name: .*en-fr, en-zh, fr-en, zh-en.*'de-en'"):
        load("de-en")


def test_reading_text_does_not_import_tensorflow():
    program = (
        "import sys\n"
        "from tf_transformer.data import load_corpus, split_pairs\n"
        "from tf_transformer.tokenizers import BPETokenizer\n"
        "split_pairs(load_corpus('en-fr')[:10])\n"
        "sys.exit('tensorflow' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_package_lists_its_names_and_refuses_others():
    import tf_transformer.data as data

    assert {"load_corpus", "split_pairs", "read_tsv"} <= set(dir(data))
    assert all(getattr(data, name).__module__.startswith(data.__name__) for name in data.__all__)
    with pytest.raises(AttributeError, match="load_corpora"):
        data.load_corpora  # noqa: B018 tests the attribute access
