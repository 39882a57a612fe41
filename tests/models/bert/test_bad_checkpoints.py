"""Only complete checkpoints load; a model is never partially loaded."""

import json
import shutil
import struct

import h5py
import numpy as np
import pytest
import tensorflow as tf
from bert_vectors import GOLDEN
from checkpoint_files import changed, changed_config, write_tensorflow
from loading import VECTORS

from tf_transformer import bert

pytestmark = pytest.mark.one_of(10, "bert")


class TestWhatIsRefused:
    """Every error states the problem, and no model is returned."""

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
        self.refuse(folder, r"surplus: in the file, with shape \(3,\); not in the model")

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
            ({"num_hidden_layers": 2}, "encoder.layer.2.* not in the model"),
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
        changed_config(folder, hidden_act="prelu")
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
        self.refuse(folder, "pytorch_model.bin, a pickle.* is not supported", FileNotFoundError)

    def test_nothing_there(self, tmp_path):
        self.refuse(tmp_path, "expected model.safetensors in", FileNotFoundError)
        self.refuse(tmp_path / "model.ckpt", "a local folder .*which is neither", OSError)

    def test_a_renamed_config(self, folder):
        (folder / "config.json").rename(folder / "configuration.json")
        self.refuse(folder, "expected a JSON file, got no file .*config.json", FileNotFoundError)

    def test_without_the_package(self, folder, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
        self.refuse(folder, r'pip install -e "\.\[bert\]"', ImportError)


class TestTensorflowFilesRefused:
    @pytest.fixture
    def google(self, tmp_path):
        model = bert.Bert.from_pretrained(GOLDEN / "BertModel")
        return write_tensorflow(tmp_path / "google", model)

    DATA = "bert_model.ckpt.data-00000-of-00001"

    def test_truncated(self, google):
        data = google / self.DATA
        data.write_bytes(data.read_bytes()[:-100])
        with pytest.raises(ValueError, match="expected a complete TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_without_data(self, google):
        (google / self.DATA).unlink()
        with pytest.raises(ValueError, match="expected a complete TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_a_damaged_index(self, google):
        index = google / "bert_model.ckpt.index"
        index.write_bytes(index.read_bytes()[:50])
        with pytest.raises(ValueError, match="expected a complete TensorFlow checkpoint"):
            bert.Bert.from_pretrained(google)

    def test_renamed(self, google):
        (google / "bert_model.ckpt.index").rename(google / "model.ckpt.index")
        with pytest.raises(ValueError, match="expected a complete TensorFlow checkpoint"):
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
        with pytest.raises(ValueError, match="model/layer/kernel: in the file.*not in the model"):
            bert.Bert.from_pretrained(google)


class TestH5:
    """`tf_model.h5` of transformers' TensorFlow classes."""

    POOLER = "bert/tf_bert_model/bert/pooler/dense/bias:0"

    def refuse(self, tmp_path, message, change):
        shutil.copy(GOLDEN / "BertModel" / "config.json", tmp_path)
        shutil.copy(VECTORS / "bert_h5" / "BertModel.h5", tmp_path / "tf_model.h5")
        with h5py.File(tmp_path / "tf_model.h5", "r+") as file:
            change(file)
        with pytest.raises(ValueError, match=message):
            bert.Bert.from_pretrained(tmp_path)

    def test_a_missing_weight(self, tmp_path):
        name = "bert/tf_bert_model/bert/embeddings/LayerNorm/beta:0"
        message = "embeddings.LayerNorm.bias: missing in the file"
        self.refuse(tmp_path, message, lambda file: file.pop(name))

    def test_values_in_another_file(self, tmp_path):
        (tmp_path / "secret").write_bytes(b"0" * 48)

        def change(file):
            del file[self.POOLER]
            external = [(str(tmp_path / "secret"), 0, 48)]
            file.create_dataset(self.POOLER, (12,), "f4", external=external)

        self.refuse(tmp_path, "expected all values of .*bias:0 within", change)

    def test_sizes_without_values(self, tmp_path):
        def change(file):
            del file[self.POOLER]
            file.create_dataset(self.POOLER, (10**12,), "f4", chunks=(10**6,))

        self.refuse(tmp_path, r"expected all values of .*, 4000000000000 bytes, got 0", change)

    def test_two_weights_of_one_name(self, tmp_path):
        def change(file):
            file["head/tf_bert_model/bert/pooler/dense/bias:0"] = np.ones(12, np.float32)

        self.refuse(tmp_path, "expected one bert.pooler.dense.bias in .*two different", change)

    def test_a_float_that_numpy_does_not_have(self, tmp_path):
        def change(file):
            group = file[self.POOLER].parent
            del file[self.POOLER]
            kind, space = h5py.h5t.IEEE_F32LE.copy(), h5py.h5s.create_simple((12,))
            kind.set_ebias(2**30)
            h5py.h5d.create(group.id, b"bias:0", kind, space)
            group["bias:0"].id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(12, "f4"))

        self.refuse(tmp_path, "tf_model.h5, which cannot be read", change)

    def test_a_damaged_file(self, tmp_path):
        shutil.copy(GOLDEN / "BertModel" / "config.json", tmp_path)
        content = (VECTORS / "bert_h5" / "BertModel.h5").read_bytes()
        (tmp_path / "tf_model.h5").write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match="tf_model.h5, which cannot be read.*complete"):
            bert.Bert.from_pretrained(tmp_path)
