"""What the included English-Chinese model makes of thirty everyday phrases.

The list was written before the training of the model that it is to judge, which is still to come.
"""

import tensorflow as tf

from tf_transformer.export.translation.shipped_models import shipped_model

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


def test_each_phrase_has_a_translation_without_english():
    model = tf.saved_model.load(shipped_model("en-zh"))
    translations = [text.decode() for text in model.translate(tf.constant(PHRASES)).numpy()]
    assert len(PHRASES) == 30
    for phrase, translation in zip(PHRASES, translations, strict=True):
        assert translation and not any("a" <= c.lower() <= "z" for c in translation), phrase
