"""What a served model does with texts."""

from tf_transformer.errors import ArgumentError
from tf_transformer.export.cores import cores
from tf_transformer.export.loading import load_saved_model
from tf_transformer.export.translation.translate_texts import n_best_translations, translate_texts


class Task:
    """An exported model and what it does: translate, classify or embed.

    Args:
        folder: str or Path of the SavedModel of a `Translator`, `TextClassifier`,
            `EarlyExitClassifier` or `TextEncoder`.
        beam: bool, whether a translator searches with beams.

    Attributes:
        name: "translate", "classify" or "embed", the path of the service.
        threads: int, batches to compute side by side.

    Raises:
        FileNotFoundError: If there is no SavedModel.
        ValueError: If it is another kind of model, or `beam` and no translator.

    Example:
        >>> from tf_transformer.export import shipped_model
        >>> task = Task(shipped_model("en-zh"))
        >>> task.name, task(["Thank you."])
        ('translate', [{'translation': '谢谢你。'}])
    """

    def __init__(self, folder, beam=False):
        self._model = load_saved_model(folder)
        self._beam = beam
        kinds = {"translate": "translate", "classify": "classify", "encode": "embed"}
        found = [name for method, name in kinds.items() if hasattr(self._model, method)]
        if not found:
            raise ArgumentError(
                "model",
                "an exported translator, classifier or sentence encoder",
                f"another SavedModel, {folder}",
            )
        self.name = found[0]
        if beam and self.name != "translate":
            raise ArgumentError("beam", "a translator", f"a model to {self.name}")
        self.threads = cores()

    def __call__(self, texts):
        """Compute the results of some texts."""
        if self.name == "translate":
            if self._beam:
                found = [best[0][0] for best in n_best_translations(self._model, texts)]
            else:
                found = translate_texts(self._model, texts)
            return [{"translation": text} for text in found]
        if self.name == "classify":
            found = self._model.classify(texts)
            labels = [label.decode("utf-8") for label in found["label"].numpy()]
            [kind] = found.keys() & {"probabilities", "values"}
            rows = zip(labels, found[kind].numpy().tolist(), strict=True)
            return [{"label": label, kind: row} for label, row in rows]
        return [{"vector": row} for row in self._model.encode(texts).numpy().tolist()]
