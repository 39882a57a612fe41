"""What layers and models that take token ids have in common in Keras."""

from tf_transformer.functional.ids import as_ids


class TakesIds:
    """Mixin that keeps Keras from casting ids to the compute dtype.

    In float16 the ids 2048 and 2049 are one number. Other inputs are cast by the layers that take
    them. Ids are checked before the layer is built, and lists are taken as well.
    """

    ids_name = "ids"  # in error messages

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.autocast = False

    @property
    def input_dtype(self):
        """str, the dtype of the inputs in signatures that Keras makes itself, to export a model."""
        return "int32"

    def __call__(self, *args, **kwargs):
        if args:
            args = (self.taken(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)

    def taken(self, inputs):
        """Convert the first argument of `call`; overridden where it is not one tensor of ids."""
        return as_ids(inputs, self.ids_name)
