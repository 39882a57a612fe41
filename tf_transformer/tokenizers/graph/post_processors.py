"""The post-processors of a `tokenizer.json`: the special ids around those of a text."""

from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


def ids_around(part):
    """Find the special tokens that a file adds around a single text."""
    if part is None:
        return [], []
    maker = _MAKERS.get(part.get("type"))
    if maker is None:
        raise UnsupportedPart.of("post_processor", sorted(_MAKERS), part.get("type"))
    return maker(part)


def _bert(part):
    return [part["cls"][1]], [part["sep"][1]]


def _sequence(part):
    sides = [ids_around(inner) for inner in part["processors"]]
    sides = [side for side in sides if side != ([], [])]
    if len(sides) > 1:  # the second would apply to each token of the first
        raise UnsupportedPart.of("post_processor", "one that adds tokens", part["processors"])
    return sides[0] if sides else ([], [])


def _template(part):
    sides, names = [[], []], []
    for piece in part["single"]:
        [(kind, content)] = piece.items()
        if kind == "Sequence":
            names.append(content["id"])
        else:
            sides[len(names) > 0] += part["special_tokens"][content["id"]]["ids"]
    if names != ["A"]:
        raise UnsupportedPart.of("post_processor.single", "the text once", part["single"])
    return tuple(sides)


_MAKERS = {
    "BertProcessing": _bert,
    "ByteLevel": lambda _: ([], []),  # it changes offsets only
    "RobertaProcessing": _bert,
    "Sequence": _sequence,
    "TemplateProcessing": _template,
}
