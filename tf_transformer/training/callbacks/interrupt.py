"""Handles Ctrl-C and the signal to terminate between batches, never within one."""

import signal
import sys
import threading

import keras

from tf_transformer.distribution.workers import current_workers


class InterruptBetweenBatches(keras.callbacks.Callback):
    """Defers Ctrl-C and SIGTERM until the batch is done, then raises `KeyboardInterrupt`.

    Python raises it wherever the program happens to be. In the middle of a step this leaves some
    weights updated and others not; in a destructor the exception is printed and ignored, and
    training continues. During the last batch of an epoch and its validation, the signal is deferred
    until the end of the epoch, so that its history and weights are not lost. A second Ctrl-C is not
    deferred. SIGTERM is what `kill`, Kubernetes and Slurm send before they kill a process; the
    number of the signal is the argument of the exception.

    Used both as a context manager around `fit` and as one of its callbacks. It does nothing outside
    the main thread, where Python delivers no signals, and leaves alone a signal for which the
    program has a handler of its own or which it ignores, as background programs may. When one of
    several `Workers` gets a signal, all stop after the same batch.

    Attributes:
        is_torn: bool, whether a second signal stopped the training inside a batch, so that its
            weights must not be saved.

    Example:
        >>> with InterruptBetweenBatches() as interrupt:
        ...     callbacks = [interrupt]  # model.fit(..., callbacks=callbacks)
    """

    def __init__(self):
        super().__init__()
        self._pending = None
        self._handlers = {}
        self.is_torn = False

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            for number, handler in usual.items():
                if signal.getsignal(number) is handler:
                    self._handlers[number] = handler
                    signal.signal(number, self._keep)
        return self

    def __exit__(self, kind, error, traceback):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if kind is None:
            self._raise_if_pending()  # it came after the last batch

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 != self.params["steps"]:
            self._raise_if_anyones()

    def on_epoch_end(self, epoch, logs=None):
        self._raise_if_anyones()

    def _keep(self, number, frame):
        if self._pending:
            self.is_torn = True
            raise KeyboardInterrupt(number)
        self._pending = number
        print(
            "\nStopping after this batch or validation; press Ctrl-C again to stop immediately.",
            file=sys.stderr,
            flush=True,
        )

    def _raise_if_anyones(self):
        workers = current_workers()
        if workers.count == 1:
            self._raise_if_pending()
        elif workers.any(self._pending):  # a signal after this waits for the next batch
            self._pending = self._pending or signal.SIGTERM
            self._raise_if_pending()

    def _raise_if_pending(self):
        if self._pending:
            number, self._pending = self._pending, None
            raise KeyboardInterrupt(number)
