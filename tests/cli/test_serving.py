"""The command serve: a process that answers, refuses and stops."""

import concurrent.futures
import contextlib
import re
import signal
import socket
import subprocess
import time

import httpx
import pytest
from command_line import ENVIRONMENT, START, command_here

from tf_transformer.export import load_translator, translate_texts

pytestmark = pytest.mark.one_of(10, "long")

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
    with served(folder, "--most-batch", "4") as (process, address):
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            poisoned = clients.submit(ask, address, "a" * 100_000)
            answers = [clients.submit(ask, address, TEXTS[n % 7], TEXTS[n // 7]) for n in range(49)]
            for n, answer in enumerate(answers):
                found = [row["translation"] for row in answer.result().json()["results"]]
                assert found == [expected[TEXTS[n % 7]], expected[TEXTS[n // 7]]]
            assert poisoned.result().status_code == 422
            last = [clients.submit(ask, address, *TEXTS) for _ in range(8)]
            accepted, polls = 0, 0
            while not accepted and (polls := polls + 1) < 50:
                metrics = httpx.get(f"{address}/metrics").text
                accepted = float(re.search(r"^waiting_texts (.+)$", metrics, re.M)[1])
            process.send_signal(signal.SIGTERM)
            answered = 0
            for answer in last:
                with contextlib.suppress(httpx.TransportError):  # it was read after the signal
                    assert len(answer.result().json()["results"]) == len(TEXTS)
                    answered += len(TEXTS)
            assert answered >= accepted > 0
        assert process.wait(30) in (0, -signal.SIGTERM)
        assert process.stderr.read() == ""


# Bodies that are refused, with the status. Each stays below the limit of a megabyte but one.
REFUSED = {
    "100,000 characters": (b'{"texts": ["%s"]}' % (b"a" * 100_000), 422),
    "invalid UTF-8": (b'{"texts": ["\xff\xfe\xc3("]}', 400),
    "control characters": (b'{"texts": ["\x00\x07\x1b[2J"]}', 400),
    "a lone surrogate": (b'{"texts": ["\\ud800"]}', 422),
    "deep lists": (b'{"texts": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", 400),
    "deep objects": (b'{"texts": ' + b'{"":' * 200_000, 400),
    "a long number": (b'{"texts": [%s]}' % (b"9" * 100_000), 400),
    "infinity": (b'{"texts": [1e999, NaN]}', 422),
    "too many texts": (b'{"texts": [%s""]}' % (b'"",' * 64), 422),
    "no object": (b'"texts"', 422),
    "nothing": (b"", 422),
    "two megabytes": (b" " * 2**21, 413),
}
# Texts that are accepted; each goes into one batch with others.
STRANGE = [
    "",
    " " * 5000,
    "a" * 5000,
    "no " * 1666,
    "\x00\x01\x1b[2J\r\n\x7f",
    "\u202e\ufeff\uffff\U0010ffff",
    "e" + "\u0301" * 4999,
    "👩‍👩‍👧‍👦" * 700,
]


@pytest.mark.fault
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.whole)])
def test_poison_and_overload_cost_nobody_else_an_answer(run, times):
    limits = ("--most-batch", "4", "--most-waiting", "64")
    with (
        served(run[0] / "saved_model", *limits) as (process, address),
        concurrent.futures.ThreadPoolExecutor(32) as clients,
    ):
        alone = {text: ask(address, text).json()["results"] for text in (*TEXTS, *STRANGE)}

        def correct(*texts):
            answer = ask(address, *texts)
            if answer.status_code == 200:
                assert answer.json()["results"] == [row for text in texts for row in alone[text]]
            return answer

        for number in range(times):
            neighbors = TEXTS[number % 7], TEXTS[(number + 3) % 7]
            others = [clients.submit(correct, *neighbors) for _ in range(16)]
            refused = {
                name: clients.submit(post, address, body) for name, (body, _) in REFUSED.items()
            }
            leave_early(address)
            strange = [
                clients.submit(correct, neighbors[0], text, neighbors[1]) for text in STRANGE
            ]
            for name, answer in refused.items():
                assert answer.result().status_code == REFUSED[name][1], name
                assert list(answer.result().json()) == ["error"] and len(answer.result().text) < 200
            assert {answer.result().status_code for answer in (*others, *strange)} == {200}

            crowd = [clients.submit(correct, *TEXTS, *TEXTS) for _ in range(32)]
            answers = [answer.result() for answer in crowd]
            assert {answer.status_code for answer in answers} == {200, 503}
            assert all("retry-after" in a.headers for a in answers if a.status_code == 503)
            assert correct(*TEXTS).status_code == 200
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM) and process.stderr.read() == ""


def post(address, body):
    headers = {"content-type": "application/json"}
    return httpx.post(f"{address}/translate", content=body, headers=headers, timeout=60)


def leave_early(address):
    """Close the connection in the middle of a body."""
    with socket.create_connection(address.removeprefix("http://").split(":")) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n{")


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
