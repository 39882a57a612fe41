"""Write the models of tests/vectors/bert/ as TensorFlow classes of transformers 4 saved them.

    TF_USE_LEGACY_KERAS=1 python tests/vectors/make_h5_vectors.py

Requires tensorflow, tf_keras, torch and transformers 4; written with transformers 4.57.6.
"""

import shutil
import tempfile
from pathlib import Path

import transformers

FOLDER = Path(__file__).resolve().parent
NAMES = (
    "BertModel",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "AlbertForPreTraining",
    "AlbertForSequenceClassification",
)

if __name__ == "__main__":
    (FOLDER / "bert_h5").mkdir(exist_ok=True)
    for name in NAMES:
        source = FOLDER / "bert" / name
        model = getattr(transformers, f"TF{name}").from_pretrained(source, from_pt=True)
        if name == "AlbertForPreTraining":  # adds `decoder_bias`; PyTorch's is the other one
            head = model.predictions
            head.decoder_bias.assign(head.bias)
            head.bias.assign(0 * head.bias)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            shutil.copy(Path(folder) / "tf_model.h5", FOLDER / "bert_h5" / f"{name}.h5")
