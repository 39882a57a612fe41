"""The tokenizers of published encoder-decoders, texts to source and target ids, and of decoders.

B batch, S source length, T target length.
"""

import re
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError, MissingFileError, check, check_choice
from tf_transformer.functional.tensors import asserted
from tf_transformer.models.bert.checkpoints.config_files import LLAMA_TOKENIZER, read_json
from tf_transformer.models.bert.text_inputs import check_tokenizer_settings, refuse_added_tokens
from tf_transformer.tokenizers import GraphTokenizer, read_sentencepiece
from tf_transformer.tokenizers.graph.graph_tokenizer import framed
from tf_transformer.tokenizers.graph.texts import lookup_table
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile, fairseq_ids

# eng_Latn, en_XX, __en__
_LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]+|__[a-z]{2,3}__")
_LANGUAGE_ID = -1  # stands for that of a text in `around`
_CODE = r"^(>>(?s:.*?)<<)((?s:.*))$"  # Marian's, and the rest of a text


class TranslationTokenizer(tf.Module):
    """Source and target texts to the ids of a published `Transformer`, and ids to texts.

    Args:
        source, target: `GraphTokenizer` for each side, with the same ids; they may be one object.
        around: pair of lists of ids before and after a text, -1 for that of its language.
        codes: dict of string -> id, language codes: of the languages in `around`, such as
            "eng_Latn", or else those with which a source text may begin: ">>fra<<" (Marian).
        first_field: str, the field of `generation_config.json` that is the target's language.
        source_language, target_language: str, codes for calls that name no others.

    Example:
        >>> from tf_transformer import BPETokenizer
        >>> BPETokenizer.train(["low lower"], vocab_size=262).save("tokenizer.json")
        >>> graph = GraphTokenizer.from_file("tokenizer.json")
        >>> tokenizer = TranslationTokenizer(graph, graph, ([], [2]))
        >>> tokenizer.encode(["low"]).to_list(), tokenizer.decode([[260, 2]]).numpy().tolist()
        ([[260, 2]], [b'low'])
    """

    def __init__(
        self,
        source,
        target,
        around,
        codes=None,
        first_field=None,
        *,
        source_language=None,
        target_language=None,
    ):
        super().__init__(name="translation_tokenizer")
        self.source, self.target, self.vocab_size = source, target, source.vocab_size
        self._around, self.first_field = around, first_field
        self._strips = target.model_type.startswith("SentencePiece")  # as transformers does
        has_languages = any(_LANGUAGE_ID in side for side in around)
        self.languages = tuple(codes) if has_languages else ()
        own = {"source_language": source_language, "target_language": target_language}
        for name, language in own.items():
            if language is not None:
                check_choice(name, language, self.languages)
        self._own = {name: language and codes[language] for name, language in own.items()}
        self._codes = None
        if codes:
            self._codes = lookup_table([*codes], tf.constant([*codes.values()], tf.int32))

    @classmethod
    def from_pretrained(cls, path, source_language=None, target_language=None):
        """Read the tokenizers of a folder: `tokenizer.json`, or the models of SentencePiece.

        Without a `tokenizer.json`, Marian has `source.spm` and `target.spm`, T5 `spiece.model`, and
        M2M100 and mBART `sentencepiece.bpe.model`.

        Args:
            path: str or Path.
            source_language, target_language: str, language codes as in transformers, such as
                "eng_Latn" (NLLB), "en_XX" (mBART) or "en" (M2M100, also "__en__" as in its
                vocabulary), for models whose texts carry one, unless each call names its own. A
                source of Marian carries its code in the text: ">>fra<< How are you?".

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a file is not supported, or a language is unknown.
        """
        path = Path(path)
        if (path / "source.spm").is_file():
            return cls._marian(path, source_language or target_language)
        kind = read_json(path / "tokenizer_config.json", default={}).get("tokenizer_class")
        if (path / "tokenizer.json").is_file():
            tokenizer = GraphTokenizer.from_file(path / "tokenizer.json")
            frame = [number for number, _ in tokenizer.frame()]
            special = tokenizer.special_tokens.items()
            languages = {n: token for token, n in special if _LANGUAGE.fullmatch(token)}
        elif (path / "spiece.model").is_file():
            tokenizer, languages = _t5(path), {}
            frame = [None, tokenizer.end_id]
        elif (path / "sentencepiece.bpe.model").is_file():
            has_ids = (path / "vocab.json").is_file()
            tokenizer, languages = (_m2m100 if has_ids else _mbart)(path)
            frame = [min(languages), None, tokenizer.end_id]
            if [*languages.values()] == _MBART.split():
                kind, frame = "MBartTokenizer", [None, tokenizer.end_id, min(languages)]
        else:
            expected = "tokenizer.json, source.spm, spiece.model or sentencepiece.bpe.model"
            raise MissingFileError("path", expected, "none of them", place=path)
        given = {"source_language": source_language, "target_language": target_language}
        frame = [_LANGUAGE_ID if n in languages else n for n in frame or [None]]
        place = frame.index(None)
        around = frame[:place], frame[place + 1 :]
        if _LANGUAGE_ID not in frame:
            expected = "None for a model whose texts carry no language"
            check(not any(given.values()), ", ".join(given), expected, f"{given}")
            return cls(tokenizer, tokenizer, around)
        is_start = kind in ("MBartTokenizer", "MBartTokenizerFast")
        field = "decoder_start_token_id" if is_start else "forced_bos_token_id"
        # M2M100's first by the names that transformers gives them: "en" for "__en__".
        names = {token.strip("_"): number for number, token in languages.items()}
        codes = names | {token: number for number, token in languages.items()}
        return cls(tokenizer, tokenizer, around, codes, field, **given)

    @classmethod
    def _marian(cls, path, language):
        expected = "None: a source text of Marian begins with its code, as in >>fra<<"
        check(language is None, "source_language, target_language", expected, f"{language!r}")
        if (path / "target_vocab.json").is_file():
            raise ArgumentError("path", "one vocabulary for both sides", f"two in {path}")
        ids = _vocabulary(path)
        codes = {token: n for token, n in ids.items() if token[:2] == ">>" and token[-2:] == "<<"}
        source, target = (
            _graph(path / f"{side}.spm", ids, ("</s>", "<pad>")) for side in ("source", "target")
        )
        return cls(source, target, ([], [source.end_id]), codes)

    @property
    def first_tokens(self):
        """The fields of `generation_config.json` that the target language replaces, a dict."""
        language = self._own["target_language"]
        return {} if language is None else {self.first_field: language}

    def encode(self, text, source_language=None):
        """Source texts to ids: string (B,) -> int32 ragged (B, (S)), with special tokens.

        `source_language`, string (), (1,) or (B,), replaces that of the tokenizer; (0,) keeps it.
        tf.errors.InvalidArgumentError, or eagerly ValueError, for an unknown language, for none if
        the tokenizer has none, and for a text of Marian that begins with an unknown code.
        """
        text = tf.convert_to_tensor(text, tf.string)
        is_marian = self._codes is not None and not self.languages
        ids = self._with_codes(text) if is_marian else self.source.encode_strings(text)
        return self._framed(ids, "source_language", source_language)

    def encode_targets(self, text, target_language=None):
        """Target texts to labels: string (B,) -> int32 ragged (B, (T)), see `encode`."""
        ids = self.target.encode_strings(tf.convert_to_tensor(text, tf.string))
        return self._framed(ids, "target_language", target_language)

    def _with_codes(self, text):
        """The ids of texts that may begin with a code of Marian."""
        has_code = tf.strings.regex_full_match(text, _CODE)
        code = tf.where(has_code, tf.strings.regex_replace(text, _CODE, r"\1"), "")
        number = self._codes.lookup(code)
        expected = "one of the model's language codes at the start of a text, such as >>fra<<"
        error = ("text", expected, "another", "It begins with:")
        unknown = tf.boolean_mask(code, has_code & (number < 0))
        number = asserted(number, tf.equal(tf.size(unknown), 0), *error, unknown)
        text = tf.strings.regex_replace(text, _CODE, r"\2")
        codes = tf.RaggedTensor.from_row_lengths(number[has_code], tf.cast(has_code, tf.int64))
        return tf.concat([codes, self.source.encode_strings(text)], axis=1)

    def _framed(self, ids, name, language):
        ids = framed(ids, *self._around)
        if not self.languages:
            expected = "None for a model whose texts carry no language"
            check(language is None, name, expected, f"{language!r}")
            return ids
        count = tf.cast(ids.nrows(), tf.int32)
        number = self.language_ids(name, language, count, self._own[name])
        flat, rows = ids.flat_values, ids.value_rowids()
        return ids.with_flat_values(tf.where(flat == _LANGUAGE_ID, tf.gather(number, rows), flat))

    def language_ids(self, name, given, count, own):
        """The id of each text's language: of `given`, one or one for each, or else `own`."""
        given = tf.convert_to_tensor(() if given is None else given, tf.string)
        given = tf.reshape(given, (-1,))
        some = ", ".join(self.languages[:3])
        number, size = self._codes.lookup(given), tf.size(given)
        unknown = tf.boolean_mask(given, number < 0)
        error = (name, f"languages of the model, such as {some}", "another", "It is:")
        number = asserted(number, tf.equal(tf.size(unknown), 0), *error, unknown)
        error = (name, "one language, or one for each text", "another number", "It is:")
        number = asserted(number, (size == 1) | (size == count) | (size == 0), *error, size)
        if own is None:
            error = (name, f"the language of the texts, such as {some}", "none")
            number = asserted(number, size > 0, *error)
        else:
            number = tf.concat([number, [own]], 0)[: tf.maximum(size, 1)]
        return tf.broadcast_to(number, (count,))

    def decode(self, ids):
        """Ids to texts, without special tokens: int32 (B, T), dense or ragged -> string (B,)."""
        text = self.target.decode(ids)
        return tf.strings.strip(text) if self._strips else text

    def settled(self, ids):
        """The beginnings of the decoded texts that no further ids change."""
        text = self.target.settled(ids)
        return tf.strings.strip(text) if self._strips else text


def _vocabulary(path):
    ids = read_json(path / "vocab.json")
    if sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise ArgumentError("path", "the ids from 0 on, each once", f"others in {path}/vocab.json")
    return ids


def _graph(path, ids, special):
    """The tokenizer of a model of SentencePiece; further tokens in other files are refused."""
    file = read_sentencepiece(path, ids, special)
    settings = read_json(path.with_name("tokenizer_config.json"), default={})
    refuse_added_tokens(path.parent, settings, file)
    return GraphTokenizer.of(file)


def _m2m100(path):
    """The tokenizer, and its languages by their ids, which follow those of the vocabulary."""
    ids = _vocabulary(path)
    file = path / "special_tokens_map.json"
    names = read_json(file, default={}).get("additional_special_tokens") or []
    if not names or not all(isinstance(name, str) and _LANGUAGE.fullmatch(name) for name in names):
        raise ArgumentError("additional_special_tokens", f"languages in {file}", f"{names!r}")
    languages = {len(ids) + number: name for number, name in enumerate(names)}
    ids |= {name: number for number, name in languages.items()}
    special = ("<pad>", "</s>", *names)
    return _graph(path / "sentencepiece.bpe.model", ids, special), languages


def _t5(path):
    """The tokenizer: pieces, then the tokens for masked spans (Raffel et al. 2020, 3.1.4)."""
    file = path / "tokenizer_config.json"
    count = read_json(file, default={}).get("extra_ids", 100)
    if type(count) is not int or count < 0:
        raise ArgumentError("extra_ids", f"a whole number, at least 0, in {file}", f"{count!r}")
    extra = [f"<extra_id_{number}>" for number in reversed(range(count))]

    def ids(pieces):
        return {name: number for number, name in enumerate([*pieces, *extra])}

    return _graph(path / "spiece.model", ids, extra)


# Liu et al. 2020, table 1, in the order of their ids. They follow a text.
_MBART = """ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR
lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"""
# Tang et al. 2020, table 1, after those. All precede a text.
_MBART50 = """af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL
ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"""


def _mbart(path):
    """The tokenizer, and its languages by their ids."""
    size = read_json(path / "config.json").get("vocab_size")
    names = _MBART.split(), f"{_MBART} {_MBART50}".split()

    def ids(pieces):
        found = [fairseq_ids(pieces, [*added, "<mask>"]) for added in names]
        for each in found:
            if len(each) == size:
                return each
        expected = f"{len(found[0])} or {len(found[1])} in {path}/config.json"
        raise ArgumentError("vocab_size", expected, f"{size!r}")

    special = ("<pad>", "<mask>", *names[1])
    tokenizer = _graph(path / "sentencepiece.bpe.model", ids, special)
    languages = {n: t for t, n in tokenizer.special_tokens.items() if t in names[1]}
    return tokenizer, languages


def decoder_tokenizer(path):
    """The `GraphTokenizer` of a decoder: its `tokenizer.json`, or Llama's `tokenizer.model`."""
    path = Path(path)
    file = path / "tokenizer_config.json"
    settings = read_json(file, default={})
    if (path / "tokenizer.json").is_file() or not (path / "tokenizer.model").is_file():
        tokenizer = GraphTokenizer.from_file(path / "tokenizer.json")
        _check_frame(tokenizer, settings, file)
        return tokenizer
    check_tokenizer_settings(settings, LLAMA_TOKENIZER, file)
    settings = {name: value for name, value in settings.items() if value is not None}
    content = read_sentencepiece(path / "tokenizer.model").content
    if content["normalizer"]["add_dummy_prefix"] and not settings.get("legacy", True):
        content["normalizer"]["add_dummy_prefix"] = "first"
    tokens = {token["content"]: token for token in content["added_tokens"]}
    try:
        described = settings.get("added_tokens_decoder", {}).items()
        for number, token in sorted((int(number), token) for number, token in described):
            if token["single_word"]:
                raise ValueError(f"single_word of {token['content']!r}, which is not supported")
            # As in transformers, they are found in the text as it is given.
            tokens[token["content"]] = {**token, "id": number, "normalized": False}
        names = [*["<s>"] * settings.get("add_bos_token", True), None]
        names += ["</s>"] * settings.get("add_eos_token", False)
        special = {name: {"ids": [tokens[name]["id"]]} for name in filter(None, names)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        expected = f"an id and the flags of each token in {file}"
        raise ArgumentError("added_tokens_decoder", expected, f"{error!r}") from error
    single = [
        {"SpecialToken": {"id": name}} if name else {"Sequence": {"id": "A"}} for name in names
    ]
    frame = {"type": "TemplateProcessing", "single": single, "special_tokens": special}
    content |= {"added_tokens": [*tokens.values()], "post_processor": frame}
    file = TokenizerFile.of(content)
    refuse_added_tokens(path, {}, file)
    return GraphTokenizer.of(file)


def _check_frame(tokenizer, settings, path):
    """Refuse special tokens around a text that are not those of `tokenizer_config.json`."""
    ids = [number for number, _ in tokenizer.frame()] or [None]
    for name, number in (("add_bos_token", ids[0]), ("add_eos_token", ids[-1])):
        if settings.get(name) not in (None, number is not None):
            expected = f"{number is not None} in {path}, as in tokenizer.json"
            remedy = "Save the tokenizer again: its tokenizer.json is older."
            raise ArgumentError(name, expected, settings[name], remedy)
