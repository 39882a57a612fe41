"""Ctrl-C takes effect at the end of the batch and is never lost."""

import os
import signal
import threading

import keras
import numpy as np
import pytest

from tf_transformer.training.callbacks import InterruptBetweenBatches


@pytest.fixture(autouse=True)
def as_in_the_foreground():
    """A shell without job control starts what runs in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Press(keras.callbacks.Callback):
    """Sends Ctrl-C several times before a batch, inside a destructor, where Python ignores it."""

    def __init__(self, at=1, times=1):
        super().__init__()
        self.at, self.times, self.seen = at, times, []

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.at:
            for _ in range(self.times):
                Destroyed()

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(batch)


class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):  # the handler runs here
            pass


def fit(*callbacks, epochs=1):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((4, 1))
    model.fit(x, x, batch_size=1, epochs=epochs, callbacks=list(callbacks), verbose=0)


def test_a_ctrl_c_inside_a_destructor_stops_after_the_batch(capsys):
    before = signal.getsignal(signal.SIGINT)
    press = Press()
    with pytest.raises(KeyboardInterrupt), InterruptBetweenBatches() as interrupt:
        fit(press, interrupt)
    assert press.seen == [0, 1]
    assert "Stopping after this batch" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_in_the_last_batch_of_an_epoch_the_epoch_ends_first():
    press, ended = Press(at=3), []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ended.append(epoch))
    with pytest.raises(KeyboardInterrupt), InterruptBetweenBatches() as interrupt:
        fit(press, note, interrupt, epochs=2)
    assert press.seen == [0, 1, 2, 3] and ended == [0]


def test_a_second_one_stops_at_once():
    with pytest.raises(KeyboardInterrupt), InterruptBetweenBatches():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second one was kept")


def test_one_after_the_last_batch_is_not_lost():
    with pytest.raises(KeyboardInterrupt), InterruptBetweenBatches():
        os.kill(os.getpid(), signal.SIGINT)


def test_an_error_is_not_replaced():
    with pytest.raises(ZeroDivisionError), InterruptBetweenBatches():
        os.kill(os.getpid(), signal.SIGINT)
        1 / 0  # noqa: B018


def test_a_program_told_to_ignore_ctrl_c_ignores_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with InterruptBetweenBatches():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_of_the_main_thread_it_does_nothing():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def train():
        with InterruptBetweenBatches() as interrupt:
            press = Press(at=-1)
            fit(press, interrupt)
            seen.extend(press.seen)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is before
