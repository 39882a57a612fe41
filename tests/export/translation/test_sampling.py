"""Sampling settings: reproducible from the seed, different for each batch."""

import pytest

from tf_transformer.export import Sampling, load_translator, shipped_model, translate_texts


def test_each_batch_draws_other_numbers_and_each_seed_too():
    seeds = [int(Sampling(seed=s).arguments(first)["seed"]) for s in (0, 1) for first in range(50)]
    assert len(set(seeds)) == 100 and min(seeds) >= 0
    assert seeds[7] == int(Sampling(seed=0).arguments(7)["seed"])


@pytest.mark.slow
def test_a_text_in_several_batches_gets_several_samples():
    translator = load_translator(shipped_model("en-zh"))
    texts = ["Where is the station?"] * 6
    drawn = translate_texts(translator, texts, sample=Sampling(seed=5), tokens_per_batch=1)
    assert len(set(drawn)) > 1
    again = translate_texts(translator, texts, sample=Sampling(seed=5), tokens_per_batch=1)
    assert again == drawn
    cold = translate_texts(translator, texts, sample=Sampling(seed=5, top_p=1e-6))
    assert cold == translate_texts(translator, texts)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"temperature": 0.0}, "temperature: expected more than 0, got 0.0"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"top_p": 1.5}, "top_p: expected more than 0, at most 1, got 1.5"),
    ],
)
def test_settings_out_of_range(setting, said):
    with pytest.raises(ValueError, match=said):
        Sampling(**setting)


def test_beam_and_sample_exclude_each_other():
    with pytest.raises(ValueError, match="beam, sample: expected at most one of them"):
        translate_texts(None, ["x"], beam=True, sample=Sampling())
