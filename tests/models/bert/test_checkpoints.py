"""Loading and saving checkpoints."""

import json
import shutil

import keras
import ml_dtypes
import numpy as np
import pytest
from bert_vectors import CLASSES, GOLDEN, RELATIVES
from checkpoint_files import changed, write_tensorflow
from loading import VECTORS
from safetensors.numpy import load_file, save_file

from tf_transformer import bert

pytestmark = pytest.mark.one_of(10, "parts")

IDS = {"input_ids": np.array([[3, 7, 1, 28]], np.int32)}


class TestRoundTrip:
    @pytest.mark.one_of(10)
    @pytest.mark.parametrize("name, cls", {**CLASSES, **RELATIVES}.items())
    def test_hugging_faces_layout(self, tmp_path, name, cls):
        """The saved tensors are bitwise identical to Hugging Face's, the settings equal."""
        model = cls.from_pretrained(GOLDEN / name)
        model.save_pretrained(tmp_path / "saved")
        ours, theirs = (
            load_file(f / "model.safetensors") for f in (tmp_path / "saved", GOLDEN / name)
        )
        assert ours.keys() == theirs.keys()
        for key, array in ours.items():
            np.testing.assert_array_equal(array, theirs[key])
        assert cls.from_pretrained(tmp_path / "saved").config == model.config
        written, published = (
            json.loads((f / "config.json").read_text()) for f in (tmp_path / "saved", GOLDEN / name)
        )
        added = written.keys() - published.keys()
        assert added <= {"classifier_dropout", "id2label", "label2id"}
        # A table of positions is stored the same, whatever it began as.
        same = written.keys() & published.keys() - {"label2id", "sinusoidal_pos_embds"}
        assert len(same) >= 13
        assert {key: written[key] for key in same} == {key: published[key] for key in same}

    @pytest.mark.one_of(10)
    @pytest.mark.parametrize("name", CLASSES)
    def test_googles_layout(self, tmp_path, name):
        model = CLASSES[name].from_pretrained(GOLDEN / name)
        slots = {"global_step": np.int64(7), "bert/pooler/dense/kernel/adam_m": np.ones((2, 3))}
        path = write_tensorflow(tmp_path / "google", model, slots)
        for where in (path, path / "bert_model.ckpt"):
            again = CLASSES[name].from_pretrained(where)
            for one, other in zip(again.weights, model.weights, strict=True):
                np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("path", sorted((VECTORS / "bert_h5").iterdir()), ids=lambda p: p.stem)
    def test_what_the_tensorflow_classes_saved(self, tmp_path, path):
        """transformers 4 turned the models of `tests/vectors/bert` into these."""
        shutil.copy(GOLDEN / path.stem / "config.json", tmp_path)
        shutil.copy(path, tmp_path / "tf_model.h5")
        load = CLASSES[path.stem].from_pretrained
        ours, theirs = load(tmp_path).weights, load(GOLDEN / path.stem).weights
        for one, other in zip(ours, theirs, strict=True):
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
        with pytest.raises(FileNotFoundError, match="model-2.safetensors, listed in the index"):
            bert.Bert.from_pretrained(folder)
        save_file({names[1]: tensors[names[1]]}, folder / "model-2.safetensors")
        with pytest.raises(
            ValueError, match="expected in .*model-2.safetensors the tensors listed in the index"
        ):
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

    def test_tensors_at_addresses_that_are_not_aligned(self, folder):
        whole = bert.Bert.from_pretrained(folder)
        path = folder / "model.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, data = content[8 : 8 + length], content[8 + length :]
        path.write_bytes((length + 3).to_bytes(8, "little") + header + b"   " + data)
        again = bert.Bert.from_pretrained(folder)
        for one, other in zip(again.weights, whole.weights, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_a_file_that_is_replaced_is_read_anew(self, folder):
        def double(tensors):
            tensors.update({name: 2 * tensor for name, tensor in tensors.items()})

        before = bert.Bert.from_pretrained(folder)
        changed(folder, double)
        after = bert.Bert.from_pretrained(folder)
        for one, other in zip(after.weights, before.weights, strict=True):
            np.testing.assert_array_equal(one, 2 * np.asarray(other))

    def test_old_names_of_layer_normalization(self, folder):
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

    def test_only_a_new_head_is_drawn(self, monkeypatch):
        drawn = []
        draw = keras.initializers.TruncatedNormal.__call__

        def recorded(self, shape, dtype=None):
            drawn.append(tuple(shape))
            return draw(self, shape, dtype)

        monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", recorded)
        start = GOLDEN / "BertForMaskedLM"
        bert.SentenceEncoder.from_pretrained(start)
        assert drawn == []
        model = bert.BertForSequenceClassification.from_pretrained(
            start, new_head=True, labels=("a", "b", "c")
        )
        kernels = (model.bert.pooler_dense.kernel, model.classifier.kernel)
        assert drawn == [tuple(kernel.shape) for kernel in kernels]
        for kernel in kernels:
            assert 0.001 < np.std(kernel) < 0.1

    def test_copies_of_a_tied_weight(self, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(GOLDEN / "BertForMaskedLM", folder)

        def copy(tensors, factor=1.0):
            words = tensors["bert.embeddings.word_embeddings.weight"]
            tensors["cls.predictions.decoder.weight"] = (words * factor).astype(np.float32)

        changed(folder, copy)
        bert.BertForMaskedLM.from_pretrained(folder)

        def whole_numbers(tensors):
            name = "cls.predictions.decoder.weight"
            tensors[name] = tensors[name].astype(np.int32)

        for change in (lambda tensors: copy(tensors, 1.5), whole_numbers):
            changed(folder, change)
            with pytest.raises(ValueError, match="predictions.decoder.weight: expected to equal"):
                bert.BertForMaskedLM.from_pretrained(folder)


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
