"""Roles of special tokens, inferred from their names: a `tokenizer.json` does not store them."""

from tf_transformer.errors import ArgumentError

_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "start": ("<s>", "[CLS]", "<bos>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "<eos>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]"),
    "mask": ("[MASK]", "<mask>"),
}


class SpecialTokenRoles:
    """Ids of special tokens by their role, for classes with a dict `special_tokens`."""

    @property
    def pad_id(self):
        """Integer, the padding id."""
        return self._id_of_role("pad")

    @property
    def start_id(self):
        """Integer, the id that starts a text."""
        return self._id_of_role("start")

    @property
    def end_id(self):
        """Integer, the id that ends a text."""
        return self._id_of_role("end")

    @property
    def unknown_id(self):
        """Integer, the id for text the vocabulary cannot represent."""
        return self._id_of_role("unknown")

    @property
    def mask_id(self):
        """Integer, the id that replaces masked tokens (BERT)."""
        return self._id_of_role("mask")

    @property
    def ids_of_roles(self):
        """Dict of role -> integer, for the roles that have a special token."""
        return {
            role: self._id_of_role(role)
            for role, names in _NAMES.items()
            if self.special_tokens.keys() & set(names)
        }

    def _id_of_role(self, role):
        for name in _NAMES[role]:
            if name in self.special_tokens:
                return self.special_tokens[name]
        raise ArgumentError(
            f"{role}_id",
            f"one of the special tokens {_NAMES[role]}",
            list(self.special_tokens),
            "Train a vocabulary that has one, or use `special_tokens`.",
        )
