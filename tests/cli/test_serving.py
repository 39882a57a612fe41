"""The command serve: a process that answers, refuses and stops."""

import concurrent.futures
import contextlib
import signal
import socket
import subprocess
import time

import httpx
import pytest
from command_line import ENVIRONMENT, START, command_here

from tf_transformer.export import load_translator, translate_texts

TEXTS = ["Tom is here.", "", "Run! " * 40, "\x00\x07\u202e", "I see a dog.", "ñandú 😀", "No."]


@contextlib.contextmanager
def served(folder, *options):
    """A server of a model: its process and address."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    call = [*START, "serve", "--model", folder, "--port", str(port), *options]
    process = subprocess.Popen(
        call, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address = f"http://127.0.0.1:{port}"
    try:
        assert process.stdout.readline() == f"POST {address}/translate, see /docs\n"
        for _ in range(200):
            with contextlib.suppress(httpx.TransportError):
                assert httpx.get(f"{address}/healthz").json() == {"status": "ok"}
                break
            time.sleep(0.05)
        yield process, address
    finally:
        process.kill()
        process.communicate()


def ask(address, *texts):
    return httpx.post(f"{address}/translate", json={"texts": texts}, timeout=60)


def test_many_clients_get_what_the_model_says_and_a_stop_loses_no_answer(run):
    folder = run[0] / "saved_model"
    translator = load_translator(folder)
    expected = dict(zip(TEXTS, translate_texts(translator, TEXTS), strict=True))
    with served(folder) as (process, address):
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            poisoned = clients.submit(ask, address, "a" * 100_000)
            answers = [clients.submit(ask, address, TEXTS[n % 7], TEXTS[n // 7]) for n in range(49)]
            for n, answer in enumerate(answers):
                found = [row["translation"] for row in answer.result().json()["results"]]
                assert found == [expected[TEXTS[n % 7]], expected[TEXTS[n // 7]]]
            assert poisoned.result().status_code == 422
            last = [clients.submit(ask, address, *TEXTS) for _ in range(8)]
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            for answer in last:
                with contextlib.suppress(httpx.ConnectError):  # it came after the signal
                    assert len(answer.result().json()["results"]) == len(TEXTS)
        assert process.wait(30) in (0, -signal.SIGTERM)
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "options, message",
    [
        (["--most-batch", 0], "--most-batch: expected a positive number, got 0"),
        (["--model", "nowhere"], "nowhere: expected"),
    ],
)
def test_bad_input(options, message):
    done = command_here("serve", *options)
    assert done.returncode == 2 and done.stderr.decode().startswith(f"tf-transformer: {message}")
