"""Write tests/vectors/pieces/ with the tokenizers of transformers 4, as a reference.

    python tests/vectors/make_piece_vectors.py

Requires transformers 4 and sentencepiece; written with transformers 4.57.1 and sentencepiece 0.2.3.
Stores models of SentencePiece as those of ALBERT and Llama, what `save_pretrained` writes next to
them, and the ids of texts. Version 5 rebuilds the same tokenizers with its Rust package, whose ids
differ from those that the published models were trained with.
"""

import io
import json
import random
import shutil
from pathlib import Path

import sentencepiece
from transformers import AddedToken, AlbertTokenizer, LlamaTokenizer

FOLDER = Path(__file__).resolve().parent / "pieces"
WORDS = [
    *("low", "lower", "newest", "Wide", "5,", "2,000", "1,5,", "²,3", "½,", "``", "''", "``'"),
    *("é", "É", "Öß", "İ", "ﬁ", "①", "㍿", "ﷺ", "a\u0301", "\u0345", "e\u0301\u0323", "ｶﾞ", "한"),
    *("(", ")", "-", ".", "–", "£", "€", "😀", "好", "ά", "[E1]", "[MASK]", "[CLS]", "<s>", "</s>"),
    *("<unk>", "<pad>", "▁", "▁low", "\t", "\n", "\u3000", "\x1c", "\x85", "\u200b", "\x01"),
    *[" ", "  ", " ", " "] * 4,
]
# As the authors of ALBERT trained theirs.
ALBERT = {
    **{"pad_id": 0, "unk_id": 1, "eos_id": -1, "bos_id": -1, "vocab_size": 150},
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    "user_defined_symbols": ["(", ")", '"', "-", ".", "–", "£", "€"],
}
LLAMA = {
    **{"model_type": "bpe", "byte_fallback": True, "vocab_size": 300},
    **{"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
}


def write(kind, tokenizer_class, settings, added=(), **options):
    folder, draw = FOLDER / kind, random.Random(7)
    folder.mkdir(parents=True)
    texts = ["low lower lowest new (wide) - 5.", 'newer newest wide wider "low"', "é 1,5,2 5, 1990"]
    for _ in range(40):
        texts.append(f"on {draw.randrange(30)},{draw.randrange(10)}00 a{draw.randrange(4)}, low")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 9),
        model_writer=written,
        minloglevel=2,
        hard_vocab_limit=False,
        **settings,
    )
    path = folder / tokenizer_class.vocab_files_names["vocab_file"]
    path.write_bytes(written.getvalue())
    tokenizer = tokenizer_class(str(path), **options)
    tokenizer.add_tokens(list(added))
    tokenizer.save_pretrained(folder)
    texts = ["".join(draw.choices(WORDS, k=draw.randrange(9))) for _ in range(300)]
    cases = {"texts": ["", " ", *texts]}
    cases["ids"] = [tokenizer(text)["input_ids"] for text in cases["texts"]]
    (folder / "cases.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    write("albert", AlbertTokenizer, ALBERT)
    ALBERT["normalization_rule_name"] = "identity"
    options = {"do_lower_case": False, "keep_accents": True}
    write("albert, cased", AlbertTokenizer, ALBERT, **options)
    padding = AddedToken("<pad>", lstrip=True, special=True)
    write("llama", LlamaTokenizer, LLAMA, ["[E1]", padding], legacy=True, pad_token="<pad>")
    options = {"legacy": False, "add_bos_token": False, "add_eos_token": True}
    write("llama, not legacy", LlamaTokenizer, LLAMA, **options)
