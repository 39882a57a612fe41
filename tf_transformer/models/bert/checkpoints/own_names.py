"""Names of the variables of a model with an `Architecture`."""

import re


class OwnNames:
    """A `NameTable` for what no other library can read: names in the file are those here."""

    prefix = "bert/"

    def there(self, ours):
        """Return the name in the file, which is the same."""
        return ours

    def is_transposed(self, ours):
        """Whether the file contains a variable's matrix transposed: no."""
        del ours
        return False

    def is_left_over(self, there):
        """Whether a model may ignore it: a head or a pooler."""
        return not re.match("bert/(embeddings|encoder)/", there)
