"""`BertConfig`, and configuration files from other libraries."""

import json

import pytest

from tf_transformer import bert
from tf_transformer.models.bert.checkpoints.config_files import config_file

HUGGING_FACE = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.2,
    "gradient_checkpointing": False,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.3,
    "hidden_size": 12,
    "id2label": {"0": "no", "1": "yes"},
    "intermediate_size": 17,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 7,
    "model_type": "bert",
    "num_attention_heads": 3,
    "num_hidden_layers": 5,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "type_vocab_size": 4,
    "vocab_size": 29,
}
GOOGLE = {
    "attention_probs_dropout_prob": 0.0,
    "directionality": "bidi",
    "embedding_size": 5,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 12,
    "initializer_range": 0.01,
    "intermediate_size": 17,
    "max_position_embeddings": 7,
    "num_attention_heads": 3,
    "num_hidden_layers": 5,
    "pooler_fc_size": 768,
    "type_vocab_size": 2,
    "vocab_size": 29,
}


def written(folder, content):
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_defaults_are_bert_base():
    config = bert.BertConfig()
    assert (config.vocab_size, config.hidden_size, config.head_size) == (30522, 768, 64)
    assert bert.BertConfig.of(json.loads(json.dumps(config.to_dict()))) == config


def test_functions_are_written_by_name():
    config = bert.BertConfig(hidden_act=bert.gelu_tanh)
    assert config.to_dict()["hidden_act"] == "gelu_new"
    with pytest.raises(
        ValueError, match="hidden_act: expected one of gelu,.* in a saved config, got"
    ):
        bert.BertConfig(hidden_act=abs).to_dict()


def test_groups_of_layers():
    config = bert.BertConfig(num_hidden_layers=5, num_hidden_groups=2)
    assert [config.group_of(n) for n in range(5)] == [0, 0, 0, 1, 1]
    assert [bert.BertConfig().group_of(n) for n in (0, 7, 11)] == [0, 7, 11]


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"vocab_size": 0}, "vocab_size: expected a positive integer, got 0"),
        ({"vocab_size": 29.0}, "vocab_size: expected a positive integer, got 29.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers: expected a positive integer"),
        ({"hidden_size": 770}, "multiple of the number of attention heads, got 770 and 12"),
        ({"hidden_dropout_prob": 1.0}, r"hidden_dropout_prob: expected a number in \[0, 1\)"),
        ({"hidden_dropout_prob": "0.1"}, "hidden_dropout_prob: expected a number"),
        ({"classifier_dropout": -0.1}, "classifier_dropout: expected a number"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps: expected a positive number"),
        ({"hidden_act": "geluu"}, "hidden_act: expected one of gelu, gelu_new"),
        ({"pooler_activation": "x"}, "pooler_activation: expected one of gelu, gelu_new"),
        ({"num_hidden_groups": 13}, "num_hidden_groups: expected at most one group"),
        ({"num_hidden_groups": 0}, "num_hidden_groups: expected a positive integer"),
        ({"labels": ("a", "a")}, "labels: expected distinct strings"),
        ({"hidden_size": "12"}, "hidden_size: expected a positive integer, got '12'"),
        ({"hidden_size": -12}, "hidden_size: expected a positive integer, got -12"),
        ({"type_vocab_size": 0}, "type_vocab_size: expected a positive integer, got 0"),
        ({"hidden_dropout_prob": float("nan")}, "hidden_dropout_prob: expected a number"),
        ({"layer_norm_eps": float("inf")}, "layer_norm_eps: expected a positive number, got inf"),
        ({"initializer_range": float("inf")}, "initializer_range: expected a positive number"),
        ({"initializer_range": 10**400}, "initializer_range: expected a positive number, got 1000"),
        ({"layer_norm_eps": True}, "layer_norm_eps: expected a positive number, got True"),
        ({"problem_type": "multi_label"}, "problem_type: expected one of single_label_.*regress"),
        ({"problem_type": ["regression"]}, "problem_type: expected one of single_label_"),
        (
            {"problem_type": "single_label_classification", "labels": ("a",)},
            "problem_type: expected at least two labels .* got .'a',.*With one label use .regress",
        ),
        ({"tie_word_embeddings": 0}, "tie_word_embeddings: expected True or False, got 0"),
    ],
)
def test_refuses(fields, message):
    with pytest.raises(ValueError, match=message):
        bert.BertConfig(**fields)


def test_unknown_keys_are_refused_with_a_list():
    with pytest.raises(ValueError, match="got also hiden_size, layers"):
        bert.BertConfig.of({"layers": 3, "hiden_size": 12, "vocab_size": 29})


def test_reads_hugging_faces(tmp_path):
    config = bert.read_config(written(tmp_path, HUGGING_FACE))
    assert config == bert.BertConfig(
        vocab_size=29,
        hidden_size=12,
        num_hidden_layers=5,
        num_attention_heads=3,
        intermediate_size=17,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.2,
        max_position_embeddings=7,
        type_vocab_size=4,
        layer_norm_eps=1e-5,
        labels=("no", "yes"),
    )


def test_reads_googles(tmp_path):
    config = bert.read_config(written(tmp_path, GOOGLE), hidden_dropout_prob=0.5)
    assert config.embedding_width == 5
    assert config.initializer_range == 0.01
    assert config.hidden_dropout_prob == 0.5
    assert config.labels == ()


@pytest.mark.parametrize(
    "problem_type, labels, answers",
    [
        (None, 3, "softmax"),
        (None, 2, "softmax"),
        (None, 1, "sigmoid"),
        ("single_label_classification", 3, "softmax"),
        ("multi_label_classification", 3, "sigmoid"),
        ("multi_label_classification", 1, "sigmoid"),
        ("regression", 3, "linear"),
        ("regression", 1, "linear"),
    ],
)
def test_what_makes_answers_of_logits(tmp_path, problem_type, labels, answers):
    """`test_in_transformers.py` compares these with the pipeline of transformers."""
    names = {str(n): f"LABEL_{n}" for n in range(labels)}
    content = {**HUGGING_FACE, "id2label": names, "problem_type": problem_type}
    config = bert.read_config(written(tmp_path, content))
    assert (config.problem_type, config.answers) == (problem_type, answers)
    again = config_file(config, "BertForSequenceClassification")
    assert again.get("problem_type") == problem_type
    assert bert.BertConfig.of(config.to_dict()) == config


@pytest.mark.parametrize(
    "activation, labels, answers",
    [
        ("torch.nn.modules.linear.Identity", 1, "linear"),
        ("torch.nn.modules.linear.Identity", 3, "softmax"),
        ("torch.nn.modules.activation.Sigmoid", 1, "sigmoid"),
        ("torch.nn.modules.activation.Sigmoid", 3, "sigmoid"),
    ],
)
def test_what_a_cross_encoder_makes_of_logits(tmp_path, activation, labels, answers):
    names = {"id2label": {str(n): f"LABEL_{n}" for n in range(labels)}}
    older = {"sbert_ce_default_activation_function": activation}
    newer = {"sentence_transformers": {"version": "5.0.0", "activation_fn": activation}}
    for field in (older, newer, {**newer, "sbert_ce_default_activation_function": "torch.X"}):
        content = {**HUGGING_FACE, **names, **field}
        assert bert.read_config(written(tmp_path, content)).answers == answers
    content["problem_type"] = "multi_label_classification"  # it has the last word
    assert bert.read_config(written(tmp_path, content)).answers == "sigmoid"


@pytest.mark.parametrize(
    "field",
    [
        {"activation_fn": "torch.nn.modules.activation.Tanh"},
        {"activation_fn": ["Sigmoid"]},
        ["torch.nn.modules.linear.Identity"],
    ],
)
def test_refuses_another_activation_of_a_cross_encoder(tmp_path, field):
    path = written(tmp_path, {**HUGGING_FACE, "sentence_transformers": field})
    with pytest.raises(ValueError, match="sentence_transformers: expected an activation among"):
        bert.read_config(path)
    assert bert.read_config(path, problem_type="regression").answers == "linear"
    assert bert.read_config(path, problem_type=None).problem_type is None


def test_a_cross_encoder_with_other_labels(tmp_path):
    """Of one score a regression, and of several classes no longer."""
    one = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    path = written(tmp_path, {**HUGGING_FACE, **one, "id2label": {"0": "LABEL_0"}})
    assert bert.read_config(path, labels=("relevance",)).answers == "linear"
    assert bert.read_config(path, labels=("no", "yes")).answers == "softmax"


def test_changes_override_the_file(tmp_path):
    content = {**HUGGING_FACE, "problem_type": "regression", "hidden_dropout_prob": 1.0}
    path = written(tmp_path, content)
    changes = {"problem_type": None, "hidden_dropout_prob": 0.2, "labels": ("a", "b", "c")}
    config = bert.read_config(path, **changes)
    assert {name: getattr(config, name) for name in changes} == changes
    with pytest.raises(ValueError, match=r"hidden_dropout_prob: expected a number in \[0, 1\)"):
        bert.read_config(path)


def test_a_key_twice_is_refused(tmp_path):
    path = written(tmp_path, json.dumps(GOOGLE)[:-1] + ', "hidden_size": 24}')
    with pytest.raises(ValueError, match="config.json, got The key 'hidden_size' occurs twice"):
        bert.read_config(path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", '"0.1"', "-0.1", "true"])
def test_a_rate_that_is_no_number(tmp_path, value):
    text = json.dumps({**GOOGLE, "hidden_dropout_prob": "X"}).replace('"X"', value)
    with pytest.raises(ValueError, match="hidden_dropout_prob: expected a number in"):
        bert.read_config(written(tmp_path, text))


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "expected a JSON object"),
        ("[1]", "expected a JSON object in .*got a list"),
        ({**HUGGING_FACE, "model_type": "deberta"}, "model_type: expected one of bert, albert"),
        (
            {**HUGGING_FACE, "position_embedding_type": "relative_key"},
            "position_embedding_type: expected 'absolute'.* got 'relative_key'",
        ),
        ({**HUGGING_FACE, "is_decoder": True}, "is_decoder: expected False"),
        ({**HUGGING_FACE, "tie_word_embeddings": "no"}, "tie_word_embeddings: expected True or F"),
        ({**HUGGING_FACE, "problem_type": "multilabel"}, "problem_type: expected one of single_"),
        ({**HUGGING_FACE, "add_cross_attention": True}, "add_cross_attention: expected False"),
        ({**HUGGING_FACE, "is_encoder_decoder": True}, "is_encoder_decoder: expected False"),
        ({**HUGGING_FACE, "pruned_heads": {"0": [*range(99)]}}, "pruned_heads: expected {.*fewer"),
        ({**HUGGING_FACE, "pruned_heads": [1]}, "pruned_heads: expected {.*got \\[1\\]"),
        (
            {**HUGGING_FACE, "quantization_config": {"bits": 8}},
            "quantization_config: expected None in .* Not supported: weights in another format",
        ),
        ({**GOOGLE, "num_labels": "3"}, "num_labels: expected an integer in .* got '3'"),
        ({**HUGGING_FACE, "hidden_act": "prelu"}, "hidden_act: expected one of gelu"),
        ({**HUGGING_FACE, "id2label": {"0": "a", "2": "b"}}, "id2label: expected a name for each"),
        (
            {"vocab_size": 29, "hidden_size": 12},
            "expected num_hidden_layers, num_attention_heads in",
        ),
        ({**GOOGLE, "model_type": "albert"}, "expected num_hidden_groups in"),
        ({**GOOGLE, "num_hidden_groups": 1, "inner_group_num": 2}, "inner_group_num: expected 1"),
    ],
)
def test_refuses_a_file(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        bert.read_config(written(tmp_path, content))


def test_refuses_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="got no file"):
        bert.read_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    "changes, model_type",
    [
        ({}, "bert"),
        ({"labels": ("no", "也许")}, "bert"),
        ({"pooler_activation": None}, "bert"),
        ({"embedding_size": 6, "num_hidden_groups": 1}, "albert"),
        # Variants that no other library computes get a type that no other library accepts.
        ({"pooler_activation": "linear"}, "tf_transformer_bert"),
        ({"embedding_size": 6}, "tf_transformer_bert"),
        ({"num_hidden_groups": 1}, "tf_transformer_bert"),
    ],
)
def test_writes_what_it_reads(tmp_path, changes, model_type):
    config = bert.BertConfig(hidden_act="relu", classifier_dropout=0.2, **changes)
    content = config_file(config, "BertModel")
    assert content["model_type"] == model_type
    path = written(tmp_path, content)
    again = bert.read_config(path)
    if config.pooler_activation is None:  # the weights determine this one
        again = bert.read_config(path, pooler_activation=None)
    assert again == config


def test_googles_albert_has_the_gelu_of_its_code(tmp_path):
    content = {**GOOGLE, "hidden_act": "gelu"}
    assert bert.read_config(written(tmp_path, content)).hidden_act == "gelu"
    albert = {**content, "num_hidden_groups": 1}
    assert bert.read_config(written(tmp_path, albert)).hidden_act == "gelu_new"
    published = {**albert, "model_type": "albert"}
    assert bert.read_config(written(tmp_path, published)).hidden_act == "gelu"


def test_labels_of_a_file(tmp_path):
    numbers = {**HUGGING_FACE, "id2label": {"0": 3, "1": 5}}
    assert bert.read_config(written(tmp_path, numbers)).labels == ("3", "5")
    assert bert.read_config(written(tmp_path, {**GOOGLE, "num_labels": None})).labels == ()


def test_one_string_is_no_labels():
    with pytest.raises(ValueError, match="labels: expected a tuple of strings, got 'pos'"):
        bert.BertConfig(labels="pos")
    assert bert.BertConfig(labels=None).labels == ()
