"""Tokenizer files of many kinds, made by this library or by the Rust package alone."""

import json

from sentencepiece_models import trained_model
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from tokenizers.implementations import (
    BertWordPieceTokenizer,
    ByteLevelBPETokenizer,
    CharBPETokenizer,
    SentencePieceBPETokenizer,
    SentencePieceUnigramTokenizer,
)

from tf_transformer.tokenizers import (
    BPETokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
    bert_pipeline,
    metaspace_pipeline,
    read_sentencepiece,
)

SIZE = 8000


def _ours(train, *pipeline):
    return lambda texts, path: train(texts, SIZE, *pipeline).save(path)


def _theirs(make, **settings):
    def write(texts, path):
        tokenizer = make()
        tokenizer.train_from_iterator(texts, vocab_size=SIZE, show_progress=False, **settings)
        tokenizer.save(str(path))

    return write


def _llama(texts, path):
    """Llama 2: no pre-tokenizer, so a text is one word; unknown characters become bytes."""
    metaspace = "▁"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(metaspace), normalizers.Replace(" ", metaspace)]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(metaspace, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>"]
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=special + in_bytes,
        limit_alphabet=500,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts[::5], trainer)
    content = json.loads(tokenizer.to_str())
    content["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    content["added_tokens"] = content["added_tokens"][: len(special)]
    path.write_text(json.dumps(content), encoding="utf-8")


_LLAMA_3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA_3_WORDS.replace("{1,3}", "")
WORDS = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3": _LLAMA_3_WORDS,
    "Qwen2": _QWEN2_WORDS,
}


def _with_words_of(kind, texts, normalizer=None, special=(), added=()):
    """The content of a byte-level BPE with the words of a published model."""
    split = pre_tokenizers.Split(Regex(WORDS[kind]), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in added])
    return json.loads(tokenizer.to_str())


def _llama_3(texts, path):
    """A word in the vocabulary is never split, whatever the merges."""
    content = _with_words_of("Llama 3", texts, special=["<|begin_of_text|>", "<|eot_id|>"])
    content["model"] |= {"ignore_merges": True, "merges": content["model"]["merges"][:1000]}
    path.write_text(json.dumps(content), encoding="utf-8")


def _qwen2(texts, path):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    content = _with_words_of("Qwen2", texts, normalizers.NFC(), special, ["<tool_call>"])
    path.write_text(json.dumps(content), encoding="utf-8")


def _fused_unknown(texts, path):
    """BPE with a prefix, a suffix, and unknown characters fused into one token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder("@")
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<unk>"],
        limit_alphabet=100,
        continuing_subword_prefix="~",
        end_of_word_suffix="@",
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def _unigram_with_bytes(texts, path):
    """Unigram with byte fallback for unknown characters, which are frequent."""
    UnigramTokenizer.train([text for text in texts if text.isascii()], 3000).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    vocabulary += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    content["model"]["byte_fallback"] = True
    metaspace = content["decoder"]
    content["decoder"] = {
        "type": "Sequence",
        "decoders": [metaspace, {"type": "ByteFallback"}, {"type": "Fuse"}],
    }
    path.write_text(json.dumps(content), encoding="utf-8")


def _converted(*before, normalizers=()):
    """T5, XLM-R, ALBERT: a SentencePiece model with its map, as transformers converts it."""

    def write(texts, path):
        model = path.with_suffix(".model")
        model.write_bytes(trained_model(texts[::9], vocab_size=SIZE))
        content = read_sentencepiece(model).content
        metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
        metaspace["split"] = True
        scores = dict(content["model"]["pieces"])
        vocabulary = [[piece, scores.get(piece, 0.0)] for piece in content["model"]["vocab"]]
        blob = content["normalizer"]["precompiled_charsmap"]
        converted = {
            "version": "1.0",
            "added_tokens": content["added_tokens"],
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    *normalizers,
                    {"type": "Precompiled", "precompiled_charsmap": blob},
                ],
            },
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*before, metaspace]},
            "decoder": metaspace,
            "model": {"type": "Unigram", "unk_id": 0, "vocab": vocabulary, "byte_fallback": False},
        }
        path.write_text(json.dumps(converted), encoding="utf-8")

    return write


_ALBERT = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    *({"type": name} for name in ("NFKD", "StripAccents", "Lowercase")),
]

MAKERS = {
    "bpe": _ours(BPETokenizer.train),
    "wordpiece": _ours(WordPieceTokenizer.train),
    "unigram": _ours(UnigramTokenizer.train),
    "bpe of characters": _ours(BPETokenizer.train, metaspace_pipeline()),
    "wordpiece, cased": _ours(WordPieceTokenizer.train, bert_pipeline(lowercase=False)),
    "wordpiece, metaspace": _ours(WordPieceTokenizer.train, metaspace_pipeline()),
    "unigram, bert": _ours(UnigramTokenizer.train, bert_pipeline()),
    "GPT-2": _theirs(ByteLevelBPETokenizer),
    "RoBERTa": _theirs(lambda: ByteLevelBPETokenizer(add_prefix_space=True)),
    "GPT": _theirs(CharBPETokenizer),
    "SentencePiece BPE": _theirs(SentencePieceBPETokenizer),
    "SentencePiece Unigram": _theirs(SentencePieceUnigramTokenizer, unk_token="<unk>"),
    "BERT": _theirs(BertWordPieceTokenizer),
    "Unigram of bytes": _unigram_with_bytes,
    "Llama 2": _llama,
    "Llama 3": _llama_3,
    "Qwen2": _qwen2,
    "fused unknown": _fused_unknown,
    "T5": _converted(),
    "XLM-R": _converted({"type": "WhitespaceSplit"}),
    "ALBERT": _converted({"type": "WhitespaceSplit"}, normalizers=_ALBERT),
}

# One of each model, as trained by this package.
MODELS = ("bpe", "wordpiece", "unigram")
