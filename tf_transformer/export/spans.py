"""SavedModels of BERT that find parts of texts: answers to questions, and entities.

Axes: B batch, T length, W windows, L longest window, A tokens of an answer, K candidates,
N tokens, C classes, E entities.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.export.compile_for import traced
from tf_transformer.export.saving import TEXTS
from tf_transformer.export.text_models import MaskFiller, TextClassifier, TextEncoder, TextModel
from tf_transformer.functional.tensors import asserted
from tf_transformer.models.bert import BertForQuestionAnswering, BertForTokenClassification
from tf_transformer.models.bert.checkpoints.config_files import read_json
from tf_transformer.models.bert.text_inputs import pad_segments, special_frame
from tf_transformer.models.hugging_face.folders import BERTS, has_classes
from tf_transformer.tokenizers.graph.texts import repair_utf8, selected, starts_where

MOST_ANSWERS = 1000
_LONGEST_WINDOW, _LONGEST_OVERLAP = 384, 128


def _parts(texts, rows, start, end):
    """The parts of some texts (B,) that begin and end at characters, all (N,)."""
    texts = tf.gather(repair_utf8(texts), rows)
    return tf.strings.substr(texts, start, tf.maximum(end - start, 0), unit="UTF8_CHAR")


class _SpanModel(TextModel):
    """A model with its tokenizer, whose offsets tell where the tokens are in the text."""

    longest = None  # the default `max_length`, if the model has more positions

    def __init__(self, model, tokenizer, max_length, jit_compile):
        if getattr(model, "published_as", None) != self.head.published_as:
            raise ArgumentError("model", f"a {self.head.__name__}", type(model).__name__)
        if max_length is None and self.longest:
            max_length = min(self.longest, model.config.max_length)
        super().__init__(model, tokenizer, max_length, jit_compile)
        tokenizer.encode_with_offsets([""])  # refuses a tokenizer without exact ones


class QuestionAnswerer(_SpanModel):
    """A `BertForQuestionAnswering` with its tokenizer, as a SavedModel: answers from contexts.

    Scores are those of the pipeline "question-answering" of transformers 4: the probability of the
    first token times that of the last one, by softmaxes over the tokens of the context and the
    first special token; equal texts among the best twelve candidates of each window add up. A long
    context is cut into windows that overlap. `answers` gives the `top_k` best.

    Args:
        model: a built `BertForQuestionAnswering`, or `StoredWeights` of one.
        tokenizer, jit_compile: see `TextEncoder`; the tokenizer needs exact offsets, see
            `GraphTokenizer.encode_with_offsets`.
        max_length: int, maximum number of tokens of the question and a window together; None for
            384, or all positions of the model if these are fewer.
        stride: int, tokens in which windows overlap; None for 128, or half of `max_length`.
        max_answer_length: int, maximum number of tokens of an answer.
        align_to_words: bool, whether answers are widened to whole words. False for languages
            without spaces if the tokenizer does not split them into words (XLM-RoBERTa).
        null_answers: bool, whether "" is an answer, with start and end 0, if the first special
            token has a higher score than every part of the context (SQuAD 2).

    Raises:
        ValueError: If the model is of another class, the tokenizer has no exact offsets, or a
            number is out of range; see also `TextEncoder`.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, read_tokenizer
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = BertForQuestionAnswering(BertConfig(7, 8, 1, 2, 9))
        >>> model.build()
        >>> sorted(QuestionAnswerer(model, read_tokenizer(".")).answer(["a"], ["b b a"]))
        ['answer', 'end', 'score', 'start']
    """

    head, longest = BertForQuestionAnswering, _LONGEST_WINDOW
    takes_any_text = False

    def __init__(
        self,
        model,
        tokenizer,
        max_length=None,
        jit_compile=None,
        *,
        stride=None,
        max_answer_length=15,
        align_to_words=True,
        null_answers=False,
    ):
        super().__init__(model, tokenizer, max_length, jit_compile)
        max_length = self._max_length
        numbers = [number for number, _ in special_frame(tokenizer, 2)]
        expected = "one that adds a special token before the question, such as [CLS]"
        check(numbers[0] is not None, "tokenizer", expected, "another")
        self._num_special = len(numbers) - 2
        self._before_context = len(numbers) - numbers[::-1].index(None) - 2  # special tokens
        self._stride = min(_LONGEST_OVERLAP, max_length // 2) if stride is None else stride
        most = max_length - self._num_special - 2  # a token of the question, and one to go on
        if type(self._stride) is not int or not 0 <= self._stride <= most:
            expected = f"an integer in [0, {most}] for a max_length of {max_length}"
            raise ArgumentError("stride", expected, self._stride)
        if type(max_answer_length) is not int or max_answer_length < 1:
            raise ArgumentError("max_answer_length", "an integer of at least 1", max_answer_length)
        self._max_answer_length, self._null_answers = max_answer_length, null_answers
        self._align_to_words = align_to_words
        specs = [tf.TensorSpec((None,), tf.string, name=name) for name in ("question", "context")]
        self.answers = traced(self.answers, *specs, tf.TensorSpec((), tf.int32, name="top_k"))
        self.answer = traced(self.answer, *specs)

    def answer(self, question, context):
        """string (B,), (B,) -> `answer` string (B,), `start`, `end` int32, `score` float32.

        `answer` is the part of the context from character `start` to `end`.
        tf.errors.InvalidArgumentError if a question or a context has no tokens, a question is too
        long to leave room for a window, or the numbers of questions and contexts differ.
        """
        return {name: x[:, 0] for name, x in self.answers(question, context, 1).items()}

    def answers(self, question, context, top_k):
        """Like `answer`, but each (B, top_k): the best answers to each question, the best first.

        "" and 0 where there are fewer. As in transformers, scores depend on `top_k`: equal texts
        add up among the 2 top_k + 10 best candidates of each window.
        """
        holds, expected = (top_k >= 1) & (top_k <= MOST_ANSWERS), f"1 to {MOST_ANSWERS}"
        top_k = asserted(top_k, holds, "top_k", expected, "another number")
        size = tf.size(question)
        located = self.tokenizer.locate(tf.concat([question, context], axis=0))
        asked, (ids, offsets, words) = located[0][:size], (x[size:] for x in located)
        asked, ids = self._checked(asked, ids)
        row, begin, end = self._windows(asked, ids)  # (W,) each
        places = tf.ragged.range(begin, end)
        questions = tf.gather(asked, row)
        windows = places.with_values(tf.gather(ids.values, places.values))
        outputs = self._call(pad_segments(self.tokenizer, [questions, windows]))
        inside = tf.sequence_mask(end - begin)  # (W, L)
        first = self._before_context + tf.cast(questions.row_lengths(), tf.int32)
        start_scores = _probabilities(outputs["start_logits"], inside, first)
        end_scores = _probabilities(outputs["end_logits"], inside, first)
        score, first, last = self._candidates(start_scores[:, 1:], end_scores[:, 1:], top_k)
        begin, end = begin[:, tf.newaxis], end[:, tf.newaxis]
        first, last = (tf.minimum(begin + place, end - 1) for place in (first, last))
        if self._align_to_words:
            first, last = _aligned(words.values, first, last, begin, end)
        start, end = tf.gather(offsets.values[:, 0], first), tf.gather(offsets.values[:, 1], last)
        null = start_scores[:, 0] * end_scores[:, 0]
        null = tf.math.unsorted_segment_min(null, row, tf.size(context))  # (B,)
        null = null if self._null_answers else tf.zeros_like(null)
        row = tf.repeat(row, tf.shape(score)[1])
        found = (tf.reshape(x, [-1]) for x in (start, end, score))
        return _best(context, row, *found, null, top_k)

    def _checked(self, asked, ids):
        lengths = asked.row_lengths()
        most = self._max_length - self._num_special - self._stride - 1
        expected = f"from 1 to {most} tokens in each"
        remedy = "A window of the context needs more than stride tokens beside the question."
        holds = tf.reduce_all((lengths >= 1) & (lengths <= most))
        values = asserted(asked.values, holds, "question", expected, "others", remedy)
        asked = asked.with_values(values)
        error = ("context", "at least one token in each", "none")
        values = asserted(ids.values, tf.reduce_all(ids.row_lengths() >= 1), *error)
        error = ("context", "one for each question", "another number")
        values = asserted(values, tf.equal(ids.nrows(), asked.nrows()), *error)
        return asked, ids.with_values(values)

    def _windows(self, asked, ids):
        """The row of each window, and where it begins and ends among all tokens: int32 (W,)."""
        rooms = self._max_length - self._num_special - tf.cast(asked.row_lengths(), tf.int32)
        lengths, starts = (tf.cast(x, tf.int32) for x in (ids.row_lengths(), ids.row_starts()))
        steps = rooms - self._stride
        counts = 1 + tf.maximum(-((rooms - lengths) // steps), 0)
        row = tf.repeat(tf.range(tf.size(counts)), counts)
        begin = tf.ragged.range(counts).values * tf.gather(steps, row)
        end = tf.minimum(begin + tf.gather(rooms, row), tf.gather(lengths, row))
        start = tf.gather(starts, row)
        return row, start + begin, start + end

    def _candidates(self, start, end, top_k):
        """The likeliest answers in windows: score, first and last token, (W, K)."""
        size = tf.shape(start)[1]
        longest = tf.minimum(self._max_answer_length, size)  # A
        lasts = tf.range(size)[:, tf.newaxis] + tf.range(longest)  # (L, A)
        ends = tf.gather(tf.pad(end, [[0, 0], [0, longest]]), lasts, axis=1)
        scores = tf.reshape(start[:, :, tf.newaxis] * ends, [tf.shape(start)[0], size * longest])
        # As in transformers: some become equal as whole words.
        count = 2 * top_k + 10 if self._align_to_words else top_k
        score, place = tf.math.top_k(scores, tf.minimum(count, size * longest))
        return score, place // longest, place // longest + place % longest

    def signatures(self):
        """`serving_default`: `question`, `context` -> `answer`, `start`, `end`, `score`; `answers`,
        with `top_k` as well.
        """
        return {"serving_default": self.answer, "answers": self.answers}


def _probabilities(logits, inside, first):
    """A softmax over the first token and those inside a window after `first` (W,): (W, 1 + L)."""
    places = first[:, tf.newaxis] + tf.range(tf.shape(inside)[1])
    places = tf.minimum(places, tf.shape(logits)[1] - 1)
    logits = tf.cast(logits, tf.float32)
    of_window = tf.where(inside, tf.gather(logits, places, batch_dims=1), -np.inf)
    return tf.nn.softmax(tf.concat([logits[:, :1], of_window], axis=1))


def _aligned(words, first, last, begin, end):
    """Widen answers to whole words, as far as their windows go."""
    tokens, size = tf.range(tf.size(words)), tf.reduce_max(tf.concat([words, [0]], axis=0)) + 1
    first_of_word = tf.math.unsorted_segment_min(tokens, words, size)
    last_of_word = tf.math.unsorted_segment_max(tokens, words, size)
    first = tf.maximum(tf.gather(first_of_word, tf.gather(words, first)), begin)
    return first, tf.minimum(tf.gather(last_of_word, tf.gather(words, last)), end - 1)


def _best(context, row, start, end, score, null, top_k):
    """The likeliest of candidates (N,) and of "", with the score `null` (B,): each (B, top_k)."""
    # Equal texts add up; of equal scores, the first is the better.
    texts = _parts(context, row, start, end)
    keys = tf.strings.join([tf.strings.as_string(row), tf.strings.lower(texts, "utf-8")], " ")
    distinct, number = tf.unique(keys)
    total = tf.math.unsorted_segment_sum(score, number, tf.size(distinct))
    first = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), number, tf.size(distinct))
    owner, size = tf.cast(tf.gather(row, first), tf.int64), tf.size(context, tf.int64)

    def of_contexts(x, last):
        """Values of the distinct answers for each context, then the last one, and zeros."""
        x = tf.RaggedTensor.from_value_rowids(x, owner, size)
        x = tf.concat([x, tf.RaggedTensor.from_tensor(last[:, tf.newaxis])], axis=1)
        shape = tf.stack([size, tf.maximum(x.bounding_shape(axis=1), tf.cast(top_k, tf.int64))])
        return x.to_tensor(shape=shape)

    scores, place = tf.math.top_k(of_contexts(total, null), top_k)

    def of_best(x):
        """Values of the likeliest answers; what has no probability is none."""
        x = of_contexts(tf.gather(x, first), tf.zeros_like(null, x.dtype))
        x = tf.gather(x, place, batch_dims=1)
        return tf.where(scores > 0, x, tf.zeros_like(x))

    return {"answer": of_best(texts), "start": of_best(start), "end": of_best(end), "score": scores}


class TokenClassifier(_SpanModel):
    """A `BertForTokenClassification` with its tokenizer, as a SavedModel: the entities of texts.

    The labels, scores and offsets are those of the pipeline "token-classification" ("ner") of
    transformers with its `aggregation_strategy`. Tokens labelled "O" are left out.

    Args:
        model: a built `BertForTokenClassification`, or `StoredWeights` of one.
        tokenizer, max_length, jit_compile: see `TextEncoder`; the tokenizer needs exact offsets,
            see `GraphTokenizer.encode_with_offsets`. Longer texts are truncated.
        aggregation: str, what an entity is. "none", each token; "simple", adjacent tokens with one
            label after "B-" or "I-", unless one begins with "B-"; "first", "average" and "max", the
            same of words, whose label is that of the first token, of the mean of the tokens'
            probabilities, or of the token with the largest one. Words are told apart by the
            tokens of WordPiece, and for other models by spaces.

    Raises:
        ValueError: If the model is of another class or has no labels, the tokenizer has no exact
            offsets, or the aggregation is unknown; see also `TextEncoder`.

    Example:
        >>> from tf_transformer.models.bert import BertConfig, read_tokenizer
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = BertForTokenClassification(BertConfig(7, 8, 1, 2, 9, labels=("O", "B-PER")))
        >>> model.build()
        >>> sorted(TokenClassifier(model, read_tokenizer(".")).tag(["b b a"]))
        ['end', 'label', 'score', 'start', 'word']
    """

    head = BertForTokenClassification

    def __init__(
        self, model, tokenizer, max_length=None, jit_compile=None, *, aggregation="simple"
    ):
        check_choice("aggregation", aggregation, ("none", "simple", "first", "average", "max"))
        super().__init__(model, tokenizer, max_length, jit_compile)
        self._aggregation = aggregation
        self._before = [number for number, _ in special_frame(tokenizer, 1)].index(None)
        self._num_special = len(special_frame(tokenizer, 1)) - 1
        self._unknown = tokenizer.ids_of_roles.get("unknown", -1)
        # WordPiece marks tokens that go on with a word, which are longer than their part of a text.
        is_marked = tokenizer.model_type == "WordPiece"
        self._sizes = np.array([*map(len, tokenizer.vocabulary)], np.int32) if is_marked else None
        labels = model.config.labels
        kinds = [label[2:] if label[:2] in ("B-", "I-") else label for label in labels]
        self._kinds = np.array([kinds.index(kind) for kind in kinds], np.int32)
        self._begins = np.array([label.startswith("B-") for label in labels])
        groups = [label.split("-", 1)[-1] for label in labels]
        self._names = np.array(labels if aggregation == "none" else groups)
        self.tag = traced(self.tag, TEXTS)

    def tag(self, text):
        """string (B,) -> `label`, `word` string (B, E), `score` float32, `start`, `end` int32.

        `word` is the text from character `start` to `end`; "" and 0 where there are fewer than E.
        """
        ids, offsets, _ = self.tokenizer.locate(text)
        most = self._max_length - self._num_special
        ids, offsets = ids[:, :most], offsets[:, :most]
        logits = self._call(pad_segments(self.tokenizer, [ids]))[:, self._before :]
        scores = tf.RaggedTensor.from_tensor(logits, lengths=ids.row_lengths()).values  # (N, C)
        scores = tf.nn.softmax(tf.cast(scores, tf.float32))
        rows = ids.value_rowids()
        start, end = tf.unstack(offsets.values, axis=1)
        if self._aggregation in ("first", "average", "max"):
            begins = ~self._continues(text, ids.values, rows, start, end)
            scores, rows, start, end = self._words(begins, scores, rows, start, end)
        number, score = tf.argmax(scores, axis=1), tf.reduce_max(scores, axis=1)  # (N,)
        if self._aggregation != "none":
            kind = tf.gather(self._kinds, number)
            begins = starts_where(kind[1:] != kind[:-1], kind) | tf.gather(self._begins, number)
            group, first, rows, start, end = _grouped(begins, rows, start, end)
            number, score = tf.gather(number, first), tf.math.segment_mean(score, group)
        found = tf.gather(self._names, number), score, rows, start, end
        label, score, rows, start, end = selected(tf.gather(self._names, number) != "O", *found)
        word = _parts(text, rows, start, end)
        found = {"label": label, "score": score, "start": start, "end": end, "word": word}
        return {
            name: tf.RaggedTensor.from_value_rowids(x, rows, ids.nrows()).to_tensor()
            for name, x in found.items()
        }

    def _continues(self, text, ids, rows, start, end):
        """Whether a token goes on with a word, as the pipeline guesses it: bool (N,)."""
        if self._sizes is not None:
            continues = tf.gather(self._sizes, ids) != end - start
        else:
            codes = tf.strings.unicode_decode(text, "UTF-8")
            is_space = tf.concat([codes.values == ord(" "), [False]], axis=0)
            begin = tf.gather(tf.cast(codes.row_starts(), tf.int32), rows)
            size = tf.gather(tf.cast(codes.row_lengths(), tf.int32), rows)
            here = tf.gather(is_space, begin + start) & (start < size)
            before = tf.gather(is_space, begin + tf.maximum(start - 1, 0))
            continues = (start > 0) & ~here & ~before
        return continues & (ids != self._unknown)

    def _words(self, begins, scores, rows, start, end):
        """Join tokens to words: their scores, texts, starts and ends."""
        word, first, *places = _grouped(begins, rows, start, end)
        if self._aggregation == "average":
            return tf.math.segment_mean(scores, word), *places
        if self._aggregation == "max":
            top = tf.reduce_max(scores, axis=1)
            is_best = top == tf.gather(tf.math.segment_max(top, word), word)
            place = tf.range(tf.size(word))
            first = tf.math.segment_min(tf.where(is_best, place, tf.size(word)), word)
        return tf.gather(scores, first), *places

    def signatures(self):
        """`serving_default`: `text` -> `label`, `word`, `score`, `start`, `end`."""
        return {"serving_default": self.tag}


def text_model_for(folder):
    """The class that serves a published model, by its head; None for generators and others."""
    file = Path(folder) / "config.json"
    content = read_json(file) if file.is_file() else {}
    names = content.get("architectures")
    name = str(names[0]) if isinstance(names, list) and len(names) == 1 else ""
    kinds = {
        "ForMaskedLM": MaskFiller,
        "ForQuestionAnswering": QuestionAnswerer,
        "ForSequenceClassification": TextClassifier,
        "ForTokenClassification": TokenClassifier,
        "Model": TextEncoder,
    }
    found = next((made for ending, made in kinds.items() if name.endswith(ending)), None)
    if content.get("model_type") in BERTS:
        return found
    if has_classes(content):
        return TextClassifier
    return TextEncoder if file.with_name("modules.json").is_file() else None


def _grouped(begins, rows, start, end):
    """Join tokens (N,): the group of each, and of each group the first token, text, start, end."""
    begins |= starts_where(rows[1:] != rows[:-1], rows)
    first = tf.where(begins)[:, 0]
    last = tf.concat([first[1:], [tf.size(rows, tf.int64)]], axis=0)[: tf.size(first)] - 1
    group = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    return group, first, tf.gather(rows, first), tf.gather(start, first), tf.gather(end, last)
