"""What a model card says beyond the numbers."""

from tf_transformer.export.translation.folder import model_card

DESCRIPTION = {
    "name": "en-zh",
    "version": "0.1.0",
    "source": {"corpus": "en-zh"},
    "preset": {"d_model": 8},
    "weights": 10,
    "command": "tf-transformer train",
    "pairs": {"train": 3, "validation": 1, "test": 1},
    "scores": {
        "bleu": 1.0,
        "bleu_signature": "s",
        "chrf": 2.0,
        "chrf_signature": "t",
        "sentences": 1,
    },
}


def test_judged_phrases():
    phrases = [
        {"text": "Hello!", "translation": "你好！", "accepted": True, "remark": ""},
        {"text": "Excuse me.", "translation": "再见。", "accepted": False, "remark": "goodbye"},
    ]
    card = model_card({**DESCRIPTION, "phrases": phrases})
    section = card.split("## Everyday phrases\n")[1]
    assert "1 of 2 translations" in section
    assert "| Hello! | 你好！ | yes |  |\n| Excuse me. | 再见。 | no | goodbye |\n" in section
    assert "Everyday phrases" not in model_card(DESCRIPTION)


def test_credit_of_further_data():
    card = model_card({**DESCRIPTION, "credit": "Also on the letters of Zed, CC0."})
    assert "The weights are under Apache-2.0. Also on the letters of Zed, CC0. |" in card
    assert "The weights are under Apache-2.0. |" in model_card(DESCRIPTION)
