"""What the included English-Chinese model makes of thirty everyday phrases.

The list was written before the training of the model that it judges.
"""

import pytest
import tensorflow as tf

from tf_transformer.export import shipped_model
from tf_transformer.export.translation.folder import read_description

PHRASES = (
    "Hello!",
    "Good morning.",
    "Hello, how are you?",
    "I'm fine, thank you.",
    "Nice to meet you.",
    "What's your name?",
    "Where are you from?",
    "Goodbye!",
    "See you tomorrow.",
    "Thank you very much.",
    "You're welcome.",
    "Thank you for your help.",
    "I'm sorry.",
    "I'm sorry I'm late.",
    "Excuse me.",
    "No problem.",
    "Where is the toilet?",
    "How do I get to the station?",
    "Turn left at the corner.",
    "Is it far from here?",
    "I'm lost.",
    "What time is it now?",
    "It's half past seven.",
    "What day is it today?",
    "The shop opens at nine o'clock.",
    "How much is this?",
    "It's too expensive.",
    "I want to buy this book.",
    "Can you help me?",
    "I don't understand.",
)


@pytest.mark.slow
def test_the_translations_are_those_that_the_card_judges():
    path = shipped_model("en-zh")
    judged = read_description(path)["phrases"]
    assert tuple(one["text"] for one in judged) == PHRASES and len(PHRASES) == 30
    translator = tf.saved_model.load(path)
    found = translator.translate(tf.constant(PHRASES)).numpy()
    assert [text.decode() for text in found] == [one["translation"] for one in judged]
    assert sum(one["accepted"] for one in judged) >= 27
