"""Which devices train together; a TPU by stand-ins, since there is none."""

import contextlib

import pytest
import tensorflow as tf

from tf_transformer.distribution import start_distribution


def test_a_tpu_is_found_connected_and_started_in_this_order(monkeypatch):
    calls = []

    class Strategy:
        def __init__(self, resolver):
            calls.append(("strategy", resolver))

        def scope(self):
            return contextlib.nullcontext("the scope of the TPU")

    def noted(name):
        return lambda resolver: calls.append((name, resolver))

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", lambda: "found")
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", noted("connect"))
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", noted("initialize"))
    monkeypatch.setattr(tf.distribute, "TPUStrategy", Strategy)
    with start_distribution("tpu") as scope:
        assert scope == "the scope of the TPU"
    assert calls == [(name, "found") for name in ("connect", "initialize", "strategy")]


def test_no_tpu_and_an_unknown_kind(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(ValueError, match="distribute: expected a TPU that .* got none .*TPU_NAME"):
        start_distribution("tpu")
    with pytest.raises(ValueError, match="distribute: expected one of auto, none, .* got 'gpu'"):
        start_distribution("gpu")
