"""Checkpoints in and out: nothing but whole ones, and never a model half loaded."""

import json
import shutil
import struct

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from bert_vectors import CLASSES, GOLDEN
from safetensors.numpy import load_file, save_file

from tf_transformer import bert
from tf_transformer.models.bert.checkpoints.name_table import name_table

IDS = {"input_ids": np.array([[3, 7, 1, 28]], np.int32)}


@pytest.fixture
def folder(tmp_path):
    """A copy of the tiny BertModel."""
    path = tmp_path / "model"
    shutil.copytree(GOLDEN / "BertModel", path)
    return path


def changed(folder, change):
    """Change the tensors of a folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def changed_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write_tensorflow(folder, model, extra=()):
    """A TensorFlow 1 checkpoint of a model in Google's layout."""
    folder.mkdir()
    table = name_table("albert" if model.config.num_hidden_groups else "bert", "tensorflow")
    tensors = dict(extra)
    for ours, variable in model.variables_by_name().items():
        array = np.asarray(variable)
        tensors[table.there(ours)] = array.T if table.is_transposed(ours) else array
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )
    fields = model.config.to_dict()
    names = fields.pop("labels"), fields.pop("pooler_activation"), fields.pop("classifier_dropout")
    config = {k: v for k, v in fields.items() if v is not None}
    if names[0]:
        config["id2label"] = {str(n): name for n, name in enumerate(names[0])}
    (folder / "bert_config.json").write_text(json.dumps(config))
    return folder


class TestRoundTrip:
    @pytest.mark.parametrize("name", CLASSES)
    def test_hugging_faces_layout(self, tmp_path, name):
        """What is written has the tensors of the peer, to the last bit, and its settings."""
        model = CLASSES[name].from_pretrained(GOLDEN / name)
        model.save_pretrained(tmp_path / "saved")
        ours, theirs = (
            load_file(f / "model.safetensors") for f in (tmp_path / "saved", GOLDEN / name)
        )
        assert ours.keys() == theirs.keys()
        for key, array in ours.items():
            np.testing.assert_array_equal(array, theirs[key])
        assert CLASSES[name].from_pretrained(tmp_path / "saved").config == model.config
        written, published = (
            json.loads((f / "config.json").read_text()) for f in (tmp_path / "saved", GOLDEN / name)
        )
        same = written.keys() & published.keys() - {"label2id", "classifier_dropout"}
        assert len(same) >= 13
        assert {key: written[key] for key in same} == {key: published[key] for key in same}

    @pytest.mark.parametrize("name", CLASSES)
    def test_googles_layout(self, tmp_path, name):
        model = CLASSES[name].from_pretrained(GOLDEN / name)
        slots = {"global_step": np.int64(7), "bert/pooler/dense/kernel/adam_m": np.ones((2, 3))}
        path = write_tensorflow(tmp_path / "google", model, slots)
        for where in (path, path / "bert_model.ckpt"):
            again = CLASSES[name].from_pretrained(where)
            for one, other in zip(again.weights, model.weights, strict=True):
                np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize(
        "changes",
        [{"pooler_activation": "linear"}, {"embedding_size": 5}, {"num_hidden_groups": 1}],
    )
    def test_what_nobody_else_has(self, tmp_path, changes):
        model = bert.Bert(bert.BertConfig(29, 8, 2, 2, 16, **changes))
        model.build()
        model.save_pretrained(tmp_path / "saved")
        again = bert.Bert.from_pretrained(tmp_path / "saved")
        assert again.config == model.config
        np.testing.assert_array_equal(again(IDS)["pooled_output"], model(IDS)["pooled_output"])

    def test_vocabulary_goes_along(self, tmp_path, folder):
        (folder / "vocab.txt").write_text("[PAD]\n")
        (folder / "notes.txt").write_text("not one of its files")
        bert.Bert.from_pretrained(folder).save_pretrained(tmp_path / "saved", tokenizer_from=folder)
        assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
            "config.json",
            "model.safetensors",
            "vocab.txt",
        ]

    def test_saving_into_the_same_folder_keeps_the_vocabulary(self, folder):
        (folder / "vocab.txt").write_text("[PAD]\n")
        bert.Bert.from_pretrained(folder).save_pretrained(folder)
        assert (folder / "vocab.txt").read_text() == "[PAD]\n"

    def test_saving_spares_a_folder_of_something_else(self, tmp_path, folder):
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(FileExistsError, match="config.json to replace"):
            bert.Bert.from_pretrained(folder).save_pretrained(tmp_path)
        assert (tmp_path / "thesis.txt").read_text() == "mine"

    def test_saving_replaces_a_folder_whole_or_not_at_all(self, tmp_path, folder, monkeypatch):
        model = bert.Bert.from_pretrained(folder)
        before = (folder / "model.safetensors").read_bytes()

        def full_disk(*args, **kwargs):
            raise OSError("No space left on device")

        monkeypatch.setattr("safetensors.numpy.save_file", full_disk)
        with pytest.raises(OSError, match="No space"):
            model.save_pretrained(folder)
        assert (folder / "model.safetensors").read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_shards(self, folder):
        tensors = load_file(folder / "model.safetensors")
        names = sorted(tensors)
        parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
        for part, some in parts.items():
            save_file({name: tensors[name] for name in some}, folder / part)
        whole = bert.Bert.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        index = {"weight_map": {name: part for part, some in parts.items() for name in some}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        sharded = bert.Bert.from_pretrained(folder)
        np.testing.assert_array_equal(sharded(IDS)["pooled_output"], whole(IDS)["pooled_output"])
        (folder / "model-2.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match="model-2.safetensors, which the index names"):
            bert.Bert.from_pretrained(folder)
        save_file({names[1]: tensors[names[1]]}, folder / "model-2.safetensors")
        with pytest.raises(ValueError, match="expected in .*model-2.safetensors the tensors that"):
            bert.Bert.from_pretrained(folder)

    @pytest.mark.parametrize(
        "index", ["{", "{}", '{"weight_map": {"a": "../b"}}', '{"weight_map": 1}']
    )
    def test_a_bad_index(self, folder, index):
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(index)
        with pytest.raises(ValueError, match="expected an index of safetensors files"):
            bert.Bert.from_pretrained(folder)


class TestWhatIsAccepted:
    @pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
    def test_other_floats(self, folder, dtype):
        whole = bert.Bert.from_pretrained(folder)
        changed(folder, lambda t: t.update({k: v.astype(dtype) for k, v in t.items()}))
        again = bert.Bert.from_pretrained(folder)
        assert {weight.dtype for weight in again.weights} == {"float32"}
        tolerance = 0 if dtype == np.float64 else 0.02
        for one, other in zip(again.weights, whole.weights, strict=True):
            np.testing.assert_allclose(one, other, atol=tolerance)

    def test_old_names_of_layer_normalisation(self, folder):
        whole = bert.Bert.from_pretrained(folder)

        def rename(tensors):
            for name in [name for name in tensors if "LayerNorm" in name]:
                old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
                tensors[old.replace("LayerNorm.bias", "LayerNorm.beta")] = tensors.pop(name)

        changed(folder, rename)
        again = bert.Bert.from_pretrained(folder)
        np.testing.assert_array_equal(again(IDS)["pooled_output"], whole(IDS)["pooled_output"])

    def test_what_is_no_weight(self, folder):
        changed(folder, lambda t: t.update({"embeddings.position_ids": np.arange(11)[None]}))
        bert.Bert.from_pretrained(folder)

    def test_a_model_without_pooler(self, folder):
        changed(folder, lambda t: [t.pop(f"pooler.dense.{part}") for part in ("weight", "bias")])
        model = bert.Bert.from_pretrained(folder)
        assert model.config.pooler_activation is None
        assert set(model(IDS)) == {"sequence_output"}

    def test_the_head_of_another_task_stays_behind(self):
        model = bert.Bert.from_pretrained(GOLDEN / "BertForPreTraining")
        whole = bert.BertForPreTraining.from_pretrained(GOLDEN / "BertForPreTraining")
        np.testing.assert_array_equal(model(IDS)["pooled_output"], whole.bert(IDS)["pooled_output"])

    def test_a_new_head(self):
        start = GOLDEN / "BertForMaskedLM"
        model = bert.BertForSequenceClassification.from_pretrained(
            start, new_head=True, labels=("a", "b", "c"), hidden_dropout_prob=0.3
        )
        assert model(IDS).shape == (1, 3)
        assert model.config.hidden_dropout_prob == 0.3
        trained = bert.BertForMaskedLM.from_pretrained(start)
        np.testing.assert_array_equal(
            model.bert(IDS)["sequence_output"], trained.bert(IDS)["sequence_output"]
        )

    def test_copies_of_a_tied_weight(self, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(GOLDEN / "BertForMaskedLM", folder)

        def copy(tensors, factor=1.0):
            words = tensors["bert.embeddings.word_embeddings.weight"]
            tensors["cls.predictions.decoder.weight"] = (words * factor).astype(np.float32)

        changed(folder, copy)
        bert.BertForMaskedLM.from_pretrained(folder)
        changed(folder, lambda tensors: copy(tensors, 1.5))
        with pytest.raises(ValueError, match="cls.predictions.decoder.weight: expected to equal"):
            bert.BertForMaskedLM.from_pretrained(folder)


class TestWhatIsRefused:
    """Every error says what is wrong; there is no model then."""

    def refuse(self, folder, message, error=ValueError, cls=bert.Bert):
        with pytest.raises(error, match=message) as caught:
            cls.from_pretrained(folder)
        return str(caught.value)

    def test_a_missing_tensor(self, folder):
        name = "encoder.layer.1.output.dense.bias"
        changed(folder, lambda t: t.pop(name))
        self.refuse(folder, rf"nothing was loaded.*\n.*{name}: missing in the file.*\(12,\)")

    @pytest.mark.parametrize("half", ["weight", "bias"])
    def test_half_a_pooler(self, folder, half):
        changed(folder, lambda tensors: tensors.pop(f"pooler.dense.{half}"))
        message = f"pooler.dense.{half}: missing"
        self.refuse(folder, message)
        for new_head in (True, None):
            with pytest.raises(ValueError, match=message):
                bert.BertForNextSentencePrediction.from_pretrained(folder, new_head=new_head)

    def test_one_too_many(self, folder):
        changed(folder, lambda t: t.update(surplus=np.zeros(3, np.float32)))
        self.refuse(folder, r"surplus: in the file, of shape \(3,\); the model has none")

    def test_a_wrong_shape(self, folder):
        name = "encoder.layer.0.intermediate.dense.weight"
        changed(folder, lambda t: t.update({name: np.ascontiguousarray(t[name].T)}))
        self.refuse(folder, rf"{name}: expected shape \(17, 12\), got \(12, 17\)")

    def test_integers_for_weights(self, folder):
        name = "pooler.dense.bias"
        changed(folder, lambda t: t.update({name: t[name].astype(np.int32)}))
        self.refuse(folder, f"{name}: expected floats, got I32")

    def test_all_that_differs_is_listed(self, folder):
        changed(folder, lambda t: [t.pop("pooler.dense.bias"), t.update(x=np.zeros(3, np.float32))])
        report = self.refuse(folder, "nothing was loaded")
        assert "pooler.dense.bias: missing" in report and "x: in the file" in report

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"num_hidden_layers": 2}, "encoder.layer.2.* the model has none"),
            ({"num_hidden_layers": 4}, "encoder.layer.3.* missing in the file"),
            ({"hidden_size": 14}, r"expected shape \(14, 14\), got \(12, 12\)"),
            ({"vocab_size": 30}, r"word_embeddings.weight: expected shape \(30, 12\), got \(29"),
            ({"max_position_embeddings": 512}, "position_embeddings.weight: expected shape"),
            ({"type_vocab_size": 1}, "token_type_embeddings.weight: expected shape"),
            ({"intermediate_size": 48}, "intermediate.dense.weight: expected shape"),
        ],
    )
    def test_a_config_that_contradicts_the_weights(self, folder, changes, message):
        changed_config(folder, **changes)
        self.refuse(folder, message)

    def test_a_weight_under_two_names(self, folder):
        name = "embeddings.LayerNorm."
        changed(folder, lambda t: t.update({f"{name}gamma": 2 * t[f"{name}weight"]}))
        self.refuse(folder, f"path: expected {name}weight once")

    @pytest.mark.parametrize("value", [None, 3])
    def test_an_activation_that_is_none(self, folder, value):
        changed_config(folder, hidden_act=value)
        self.refuse(folder, "hidden_act: expected the name of an activation")

    def test_an_unknown_activation(self, folder):
        changed_config(folder, hidden_act="mish")
        self.refuse(folder, "hidden_act: expected one of gelu")

    def test_a_head_that_is_not_there(self):
        self.refuse(
            GOLDEN / "BertModel",
            "classifier.weight: missing in the file",
            cls=bert.BertForSequenceClassification,
        )

    @pytest.mark.parametrize("damage", ["truncated", "empty", "8 GB", "offsets", "shape", "text"])
    def test_a_damaged_file(self, folder, damage):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
        name = "pooler.dense.bias"
        begin, end = header[name]["data_offsets"]
        if damage == "offsets":
            header[name]["data_offsets"] = [begin, end + 4]
        if damage == "shape":
            header[name]["shape"] = [13]
        text = json.dumps(header).encode()
        path.write_bytes(
            {
                "truncated": data[:-1],
                "empty": b"",
                "8 GB": struct.pack("<Q", 8 << 30) + data[8:],
                "text": b"version https://git-lfs.github.com/spec/v1\n",
            }.get(damage, struct.pack("<Q", len(text)) + text + body)
        )
        self.refuse(folder, "expected a safetensors file, got .*, which cannot be read")

    def test_a_pickle_is_not_opened(self, folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        self.refuse(folder, "pytorch_model.bin, a pickle.* is not read here", FileNotFoundError)

    def test_nothing_there(self, tmp_path):
        self.refuse(tmp_path, "expected model.safetensors in", FileNotFoundError)
        self.refuse(tmp_path / "model.ckpt", "a local folder .*where there is neither", OSError)

    def test_a_renamed_config(self, folder):
        (folder / "config.json").rename(folder / "configuration.json")
        self.refuse(folder, "expected a JSON file, got no file .*config.json", FileNotFoundError)

    def test_without_the_package(self, folder, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
        self.refuse(folder, r'pip install "tf_transformer\[bert\]"', ImportError)


class TestTensorflowFilesRefused:
    @pytest.fixture
    def google(self, tmp_path):
        model = bert.Bert.from_pretrained(GOLDEN / "BertModel")
        return write_tensorflow(tmp_path / "google", model)

    DATA = "bert_model.ckpt.data-00000-of-00001"

    def test_truncated(self, google):
        data = google / self.DATA
        data.write_bytes(data.read_bytes()[:-100])
        with pytest.raises(ValueError, match="expected a whole TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_without_data(self, google):
        (google / self.DATA).unlink()
        with pytest.raises(ValueError, match="expected a whole TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_a_damaged_index(self, google):
        index = google / "bert_model.ckpt.index"
        index.write_bytes(index.read_bytes()[:50])
        with pytest.raises(ValueError, match="expected a whole TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_renamed(self, google):
        (google / "bert_model.ckpt.index").rename(google / "model.ckpt.index")
        with pytest.raises(ValueError, match="expected a whole TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_two_of_them(self, google):
        shutil.copy(google / "bert_model.ckpt.index", google / "again.ckpt.index")
        with pytest.raises(FileNotFoundError, match="expected one checkpoint in .*Name one"):
            bert.Bert.from_pretrained(google)

    def test_without_config(self, google):
        (google / "bert_config.json").unlink()
        with pytest.raises(FileNotFoundError, match="expected bert_config.json in"):
            bert.Bert.from_pretrained(google)

    def test_names_of_another_program(self, google, tmp_path):
        tf.raw_ops.SaveV2(
            prefix=str(google / "bert_model.ckpt"),
            tensor_names=["model/layer/kernel"],
            shape_and_slices=[""],
            tensors=[tf.ones(3)],
        )
        with pytest.raises(ValueError, match="model/layer/kernel: in the file.*the model has none"):
            bert.Bert.from_pretrained(google)


def test_a_model_that_was_not_built_is_saved_whole(folder):
    config = bert.Bert.from_pretrained(folder).config
    bert.Bert(config).save_pretrained(folder)
    assert np.isfinite(bert.Bert.from_pretrained(folder)(IDS)["sequence_output"]).all()


@pytest.mark.parametrize(
    "name",
    [
        "global_step",
        "bert/pooler/dense/bias/adam_m",
        "bert/pooler/dense/bias/AdamWeightDecayOptimizer_1",
        "bert/pooler/dense/bias/lamb_v",
    ],
)
def test_an_optimizers_variables_may_be_left_over(folder, tmp_path, name):
    model = bert.Bert.from_pretrained(folder)
    path = write_tensorflow(tmp_path / "google", model, {name: np.zeros(1, np.float32)}.items())
    np.testing.assert_array_equal(
        bert.Bert.from_pretrained(path)(IDS)["pooled_output"], model(IDS)["pooled_output"]
    )


def test_a_copy_of_alberts_table_must_be_one(tmp_path):
    path = tmp_path / "albert"
    shutil.copytree(GOLDEN / "AlbertForMaskedLM", path)
    words = load_file(path / "model.safetensors")["albert.embeddings.word_embeddings.weight"]
    name = "predictions.decoder.weight"
    changed(path, lambda tensors: tensors.update({name: words}))
    bert.BertForMaskedLM.from_pretrained(path)
    changed(path, lambda tensors: tensors.update({name: words + 1}))
    with pytest.raises(ValueError, match=f"{name}: expected to equal"):
        bert.BertForMaskedLM.from_pretrained(path)


def test_a_tensorflow_checkpoint_beside_a_config_json(folder, tmp_path):
    model = bert.Bert.from_pretrained(folder)
    path = write_tensorflow(tmp_path / "google", model)
    (path / "bert_config.json").rename(path / "config.json")
    np.testing.assert_array_equal(
        bert.Bert.from_pretrained(path)(IDS)["pooled_output"], model(IDS)["pooled_output"]
    )
