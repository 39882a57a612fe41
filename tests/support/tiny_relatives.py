"""A RoBERTa small enough for unit tests, its tokenizer, and folders to start fine-tuning at."""

import dataclasses
import json
import shutil

from loading import VECTORS
from tiny_bert import TOKENS, randomised
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer
from tokenizers.processors import RobertaProcessing

from tf_transformer import bert

SIZES = dict(zip(("vocab_size", "hidden_size", "num_hidden_layers"), (29, 12, 2), strict=True))
SIZES |= {"num_attention_heads": 2, "intermediate_size": 17, "max_position_embeddings": 13}
ROBERTA = bert.BertConfig(**SIZES, type_vocab_size=1, family="roberta", labels=("no", "yes"))
LABELS = ("bad", "good")
ROWS = [
    (f"{first} {label} {last}", n)
    for first in ("a", "the", "so")
    for last in ("film", "plot")
    for n, label in enumerate(LABELS)
]


def roberta_tokenizer(folder, template=None, **settings):
    """A byte-level BPE as RoBERTa's, written as `tokenizer.json`."""
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=settings.get("add_prefix_space", False))
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]
    texts = ["a good film was the plot", "so bad , a film !", "好 电影"] * 9
    tokenizer.train_from_iterator(texts, 310, 2, show_progress=False, special_tokens=special)
    tokenizer._tokenizer.post_processor = template or RobertaProcessing(("</s>", 2), ("<s>", 0))
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "RobertaTokenizer", **settings})
    )
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def relatives_folder(folder, family, cls=bert.BertForMaskedLM, **changes):
    """A checkpoint of a family, by default of a model that predicts words, and its tokenizer."""
    changes |= {"vocab_size": 312, "pad_token_id": None, "family": family}
    if family == "albert":
        shutil.copytree(VECTORS / "pieces" / "albert", folder / "tokenizer")
        changes |= {"family": None, "num_hidden_groups": 1, "embedding_size": 8}
    elif "roberta" in family:
        roberta_tokenizer(folder / "tokenizer")
    else:
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocab.txt").write_text("\n".join(TOKENS))
    config = dataclasses.replace(ROBERTA, **changes, hidden_dropout_prob=0.0)
    model = randomised(cls(config))
    model.save_pretrained(folder / "start", tokenizer_from=folder / "tokenizer")
    return folder / "start"
