"""Write tests/vectors/text_to_text/ with Hugging Face's transformers on torch, as a reference.

    python tests/vectors/make_text_to_text_vectors.py

Requires torch, transformers, sentencepiece and sacremoses; written with torch 2.13.0, transformers
5.24.0 and sentencepiece 0.2.3. For every kind of tokenizer of an encoder-decoder, stores a tiny
model with random weights and its tokenizer, as saved by `save_pretrained`, texts with their ids,
and what `generate` makes of them, as texts.
"""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import sentencepiece
import tokenizers
import torch
import transformers

FOLDER = Path(__file__).resolve().parent / "text_to_text"
SOURCES = ["low lower lowest new", "newer newest wide wider", "widest lows news ①"] * 9
TARGETS = ["bas plus bas neuf", "plus neuf large", "le plus large des bas"] * 9
TEXTS = ["low  new", "", "wider ①\u0301 ☺☺ low", "lowest lower newer widest low"]
# The Rust package drops a mark after a character that the model's map changes, SentencePiece not.
WITHOUT_MARKS = [text.replace("\u0301", "") for text in TEXTS]
SMALL = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 29}
SMALL |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
SMALL |= {"encoder_ffn_dim": 17, "decoder_ffn_dim": 17, "init_std": 0.7}


def trained(texts, size, **settings):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        vocab_size=size,
        minloglevel=2,
        hard_vocab_limit=False,
        **settings,
    )
    return written.getvalue()


def marian(folder):
    folder.mkdir(parents=True)
    rules = folder / "rules.tsv"
    rules.write_text("2460\t31\n9\t20\n")
    pieces = {}
    for name, texts in {"source": SOURCES, "target": TARGETS}.items():
        model = trained(texts, 45, normalization_rule_tsv=str(rules))
        (folder / f"{name}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        for number in range(3, processor.vocab_size()):
            pieces[processor.id_to_piece(number)] = None
    rules.unlink()
    del pieces["s"]  # a piece without an id
    names = ["</s>", "<unk>", *sorted(pieces), ">>fra<<", ">>deu<<", "<pad>"]
    ids = {name: number for number, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    special = {"pad_token_id": ids["<pad>"], "eos_token_id": 0, "bos_token_id": None}
    special |= {"decoder_start_token_id": ids["<pad>"], "forced_eos_token_id": 0}
    config = transformers.MarianConfig(vocab_size=len(ids), **special, **SMALL)
    model = transformers.MarianMTModel(config)
    write(folder, model, tokenizer, [*TEXTS, ">>deu<< low new"], bad_words_ids=[[ids["<pad>"]]])


def from_pieces(model, special):
    """A tokenizer of the Rust package, as transformers converts T5's."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocabulary = [(name, 0.0) for name in special]
    for number in range(3, processor.vocab_size()):
        vocabulary.append((processor.id_to_piece(number), processor.get_score(number)))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, special.index("<unk>")))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    return tokenizer


def t5(folder):
    special = ["<pad>", "</s>", "<unk>"]
    inner = from_pieces(trained([*SOURCES, *TARGETS], 50), special)
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    config = transformers.T5Config(
        **{"vocab_size": len(tokenizer), "d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2},
        **{"num_heads": 3, "decoder_start_token_id": 0, "initializer_factor": 3.0},
    )
    write(folder, transformers.T5ForConditionalGeneration(config), tokenizer, TEXTS)


def nllb(folder):
    languages = ["eng_Latn", "fra_Latn", "zho_Hans"]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    inner = from_pieces(trained([*SOURCES, *TARGETS], 50), [*special, *languages])
    number = inner.token_to_id("eng_Latn")
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="eng_Latn $A </s>",
        pair="eng_Latn $A $B </s>",
        special_tokens=[("eng_Latn", number), ("</s>", 2)],
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    special = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
    config = transformers.M2M100Config(vocab_size=len(tokenizer), **special, **SMALL)
    model = transformers.M2M100ForConditionalGeneration(config)
    french = inner.token_to_id("fra_Latn")
    write(folder, model, tokenizer, TEXTS, forced_bos_token_id=french)


def m2m100(folder):
    folder.mkdir(parents=True)
    model = trained([*SOURCES, *TARGETS], 50, model_type="bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = sorted(processor.id_to_piece(n) for n in range(3, processor.vocab_size()))
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    ids = {name: number for number, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False))
    tokenizer = transformers.M2M100Tokenizer(
        folder / "vocab.json", folder / "sentencepiece.bpe.model", src_lang="en", tgt_lang="fr"
    )
    special = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
    config = transformers.M2M100Config(vocab_size=len(ids) + 100, **special, **SMALL)
    model = transformers.M2M100ForConditionalGeneration(config)
    french = tokenizer.get_lang_id("fr")
    write(folder, model, tokenizer, TEXTS, forced_bos_token_id=french)
    # As in the folders that were published; version 5 leaves the languages out.
    languages = {"additional_special_tokens": [*tokenizer.lang_code_to_token.values()]}
    (folder / "special_tokens_map.json").write_text(json.dumps(languages))


def pieces_alone(folder, name, texts, tokenizer_class, settings):
    """A model of SentencePiece, without a tokenizer.json, and the tokenizer that it makes."""
    folder.mkdir(parents=True)
    rules = folder / "rules.tsv"
    rules.write_text("2460\t31\n9\t20\n")
    model = trained(texts, 50, normalization_rule_tsv=str(rules), **settings)
    (folder / name).write_bytes(model)
    rules.unlink()
    return tokenizer_class.from_pretrained(folder)


def mt5(folder):
    settings = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    texts = [*SOURCES, *TARGETS]
    tokenizer = pieces_alone(folder, "spiece.model", texts, transformers.T5Tokenizer, settings)
    config = transformers.MT5Config(
        **{"vocab_size": len(tokenizer) + 3, "d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2},
        **{"num_heads": 3, "decoder_start_token_id": 0, "initializer_factor": 3.0},
    )
    model = transformers.MT5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    write(folder, model, tokenizer, WITHOUT_MARKS)


def bart(folder):
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=special,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([*SOURCES, *TARGETS], trainer)
    inner.post_processor = tokenizers.processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    config = transformers.BartConfig(vocab_size=len(tokenizer), **SMALL)
    model = transformers.BartForConditionalGeneration(config)
    model.final_logits_bias[0, 5:259] = -9.0  # bytes, so that the texts are mostly words
    write(folder, model, tokenizer, TEXTS)


def mbart(folder, tokenizer_class=transformers.MBartTokenizer, **settings):
    name, texts = "sentencepiece.bpe.model", [*SOURCES, *TARGETS]
    other = pieces_alone(folder, name, texts, transformers.MBart50Tokenizer, {})
    tokenizer = tokenizer_class.from_pretrained(folder)
    # Version 5 leaves it out for mBART, as version 4 did not.
    tokenizer.backend_tokenizer.normalizer = other.backend_tokenizer.normalizer
    tokenizer.src_lang, tokenizer.tgt_lang = "en_XX", "fr_XX"
    french = tokenizer.convert_tokens_to_ids("fr_XX")
    special = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    special["decoder_start_token_id"] = french if not settings else 2
    config = transformers.MBartConfig(vocab_size=len(tokenizer), **special, **SMALL)
    settings = dict.fromkeys(settings, french)
    model = transformers.MBartForConditionalGeneration(config)
    write(folder, model, tokenizer, WITHOUT_MARKS, **settings)


def mbart50(folder):
    mbart(folder, transformers.MBart50Tokenizer, forced_bos_token_id=True)


def write(folder, model, tokenizer, texts, **settings):
    model.eval()
    model.generation_config.update(max_length=17, num_beams=1, **settings)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    cases = {"texts": texts, "ids": [], "greedy": [], "beams": []}
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        cases["ids"].append(ids[0].tolist())
        for name, beams in {"greedy": 1, "beams": 3}.items():
            with torch.no_grad():
                made = model.generate(ids, num_beams=beams)
            text = tokenizer.decode(made[0], skip_special_tokens=True)
            # Version 5 does not know that M2M100's languages are special, as version 4 did.
            cases[name].append(re.sub("__[a-z]+__ *", "", text))
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        cases["targets"] = TARGETS[:3]
        cases["target_ids"] = tokenizer(text_target=TARGETS[:3])["input_ids"]
    if any(folder.glob("*.model")):  # as in folders that were published before the Rust package
        (folder / "tokenizer.json").unlink(missing_ok=True)
    text = json.dumps(cases, indent=1, ensure_ascii=False)
    (folder / "cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    for make in (marian, t5, nllb, m2m100, mt5, bart, mbart, mbart50):
        if sys.argv[1:] and make.__name__ not in sys.argv:
            continue
        shutil.rmtree(FOLDER / make.__name__, ignore_errors=True)
        torch.manual_seed(1)
        make(FOLDER / make.__name__)
