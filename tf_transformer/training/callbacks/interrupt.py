"""Handles Ctrl-C between batches, never within one."""

import signal
import sys
import threading

import keras


class InterruptBetweenBatches(keras.callbacks.Callback):
    """Defers Ctrl-C until the batch is done, then raises `KeyboardInterrupt`.

    Python raises it wherever the program happens to be. In the middle of a step this leaves some
    weights updated and others not; in a destructor the exception is printed and ignored, and
    training continues. During the last batch of an epoch and its validation, Ctrl-C is deferred
    until the end of the epoch, so that its history and weights are not lost. A second Ctrl-C is not
    deferred.

    Used both as a context manager around `fit` and as one of its callbacks. It does nothing outside
    the main thread, where Python delivers no signals, or if Ctrl-C does not raise
    `KeyboardInterrupt` anyway: a background program may be set to ignore it.

    Example:
        >>> with InterruptBetweenBatches() as interrupt:
        ...     callbacks = [interrupt]  # model.fit(..., callbacks=callbacks)
    """

    def __init__(self):
        super().__init__()
        self._pending = False

    def __enter__(self):
        in_main = threading.current_thread() is threading.main_thread()
        self._active = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._active:
            signal.signal(signal.SIGINT, self._keep)
        return self

    def __exit__(self, kind, error, traceback):
        if self._active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None:
            self._raise_if_pending()  # it came after the last batch

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 != self.params["steps"]:
            self._raise_if_pending()

    def on_epoch_end(self, epoch, logs=None):
        self._raise_if_pending()

    def _keep(self, number, frame):
        if self._pending:
            raise KeyboardInterrupt
        self._pending = True
        print(
            "\nStopping after this batch or validation; press Ctrl-C again to stop immediately.",
            file=sys.stderr,
            flush=True,
        )

    def _raise_if_pending(self):
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt
