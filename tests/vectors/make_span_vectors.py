"""Write tests/vectors/spans/ with Hugging Face's transformers on torch, as a reference.

    python tests/vectors/make_span_vectors.py

Requires torch, transformers 4 and sentencepiece; written with torch 2.13.0, transformers 4.57.6,
the last version with the pipeline "question-answering", and sentencepiece 0.2.3. For each kind of
tokenizer, stores a tiny model with random weights and its tokenizer, as saved by `save_pretrained`,
and what the pipelines "question-answering" and "token-classification" make of some texts.
"""

import io
import itertools
import json
import shutil
import warnings
from pathlib import Path

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

FOLDER = Path(__file__).resolve().parent / "spans"
QUESTIONS = ["Where is Tom?", "what", "Who was in Paris in May, and why?"]
CONTEXTS = [
    "Tom is in Paris.",
    "Ann went to  Zürich\tand cafe\u0301s; Tom stayed in Paris, in May. ann was there too. " * 3,
    "①Paris 好的 ☺ new-York\u0301?",
    "Tom",
    "in in in in in in in in in in in in in in in in in in in in in in in in in in",
]
SETTINGS = [
    {"max_seq_len": 50, "doc_stride": 10},
    {"max_seq_len": 30, "doc_stride": 7, "max_answer_len": 4, "handle_impossible_answer": True},
    {"max_seq_len": 35, "doc_stride": 0, "max_answer_len": 2, "align_to_words": False},
]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SMALL = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
SMALL |= {"intermediate_size": 17, "max_position_embeddings": 60, "initializer_range": 0.8}
MOST = 50  # tokens, the model_max_length of the tokenizers


def bert(folder):
    words = "tom ann is in paris zu ##rich may new york went to ① , . - ? 好 cafe what where"
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]
    tokens += [f"##{letter}" for letter in letters] + list(letters[::3])
    file = folder / "vocab.txt"
    file.write_text("\n".join(tokens) + "\n")
    return transformers.BertTokenizerFast(file, model_max_length=MOST)


def roberta(folder):
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator([*QUESTIONS, *CONTEXTS], 310, special_tokens=SPECIAL)
    made.save_model(str(folder))
    return transformers.RobertaTokenizerFast(
        folder / "vocab.json", folder / "merges.txt", model_max_length=MOST
    )


def xlm_roberta(folder):
    written, rules = io.BytesIO(), folder / "rules.tsv"
    # One for one, two for one, one for two; ";" is removed.
    rules.write_text("2460\t31\n9\t20\n65 301\tE9\n338F\t6B 67\n3B\t\n")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*QUESTIONS, *CONTEXTS]),
        model_writer=written,
        vocab_size=90,
        minloglevel=2,
        hard_vocab_limit=False,
        normalization_rule_tsv=str(rules),
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    vocabulary = [(name, 0.0) for name in SPECIAL[:4]]
    for number in range(3, processor.vocab_size()):
        if processor.id_to_piece(number) not in "好的":
            vocabulary.append((processor.id_to_piece(number), processor.get_score(number)))
    made = tokenizers.Tokenizer(models.Unigram([*vocabulary, ("<mask>", 0.0)], 3))
    proto = transformers.convert_slow_tokenizer.import_protobuf().ModelProto()
    proto.ParseFromString(written.getvalue())
    made.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    spaces = pre_tokenizers.Metaspace()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(SPECIAL)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    # As XLM-RoBERTa's own tokenizer; the segments of windows after the first would be other ones.
    inputs = {"model_input_names": ["input_ids", "attention_mask"]}
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, mask_token="<mask>", model_max_length=MOST, **names, **inputs
    )


CONFIGS = {
    "bert": transformers.BertConfig,
    "roberta": transformers.RobertaConfig,
    "xlm_roberta": transformers.XLMRobertaConfig,
}


def answers(model, tokenizer):
    pipeline = transformers.pipeline("question-answering", model=model, tokenizer=tokenizer)
    for settings in SETTINGS:
        found = []
        for question, context in itertools.product(QUESTIONS, CONTEXTS):
            answer = pipeline(question=question, context=context, **settings)
            found.append({"question": question, "context": context, **answer})
        yield {"settings": settings, "answers": found}


def best_answers(model, tokenizer):
    """Several answers to each question; those without probability depend on NumPy's sorting."""
    pipeline = transformers.pipeline("question-answering", model=model, tokenizer=tokenizer)
    for settings, top_k in zip(SETTINGS, (3, 20, 7), strict=True):
        for question, context in itertools.product(QUESTIONS, CONTEXTS):
            found = pipeline(question=question, context=context, top_k=top_k, **settings)
            found = [row for row in (found if isinstance(found, list) else [found]) if row["score"]]
            texts = {"question": question, "context": context}
            yield {"settings": settings, "top_k": top_k, **texts, "answers": found}


def write_best_answers(folder, model, tokenizer):
    lines = (json.dumps(case, ensure_ascii=False) for case in best_answers(model, tokenizer))
    (folder / "best.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def entities(model, tokenizer):
    texts = [*CONTEXTS, ""]
    for strategy in ("none", "simple", "first", "average", "max"):
        pipeline = transformers.pipeline(
            "token-classification", model, tokenizer=tokenizer, aggregation_strategy=strategy
        )
        found = []
        for text in texts:
            rows = pipeline(text)
            found.append(
                [
                    {
                        "label": row.get("entity", row.get("entity_group")),
                        "score": float(row["score"]),
                        "start": row["start"],
                        "end": row["end"],
                    }
                    for row in rows
                ]
            )
        yield {"aggregation": strategy, "texts": texts, "entities": found}


def write(folder, kind, ending, tokenizer, cases, **settings):
    torch.manual_seed(3)
    config = CONFIGS[kind](vocab_size=len(tokenizer), **SMALL, **settings)
    if kind != "bert":
        config.update({"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2})
    name = CONFIGS[kind].__name__.removesuffix("Config")
    model = getattr(transformers, f"{name}For{ending}")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn_like(weight)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    text = json.dumps([*cases(model, tokenizer)], indent=1, ensure_ascii=False)
    (folder / "cases.json").write_text(text + "\n", encoding="utf-8")
    if cases is answers:
        write_best_answers(folder, model, tokenizer)
    for file in folder.iterdir():  # the same as in tokenizer.json
        if file.name in ("merges.txt", "vocab.json", "vocab.txt", "special_tokens_map.json"):
            file.unlink()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "Tokenizer does not support real words")
    shutil.rmtree(FOLDER, ignore_errors=True)
    for make in (bert, roberta, xlm_roberta):
        folder = FOLDER / make.__name__
        folder.mkdir(parents=True)
        tokenizer = make(folder)
        labels = dict(enumerate(LABELS))
        write(folder / "reader", make.__name__, "QuestionAnswering", tokenizer, answers)
        write(
            *(folder / "tagger", make.__name__, "TokenClassification", tokenizer, entities),
            id2label=labels,
            label2id={label: number for number, label in labels.items()},
        )
        for file in folder.glob("*.*"):
            file.unlink()
