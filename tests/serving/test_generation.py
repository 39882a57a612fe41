"""Generating texts: results, server-sent events, refused requests, clients that leave."""

import asyncio
import contextlib
import json

import pytest
from fastapi.testclient import TestClient
from loading import VECTORS
from small_generators import generator_folder

from tf_transformer.serving import Limits, Refused, Task, create_app

pytestmark = pytest.mark.one_of(10, "served")

LIMITS = Limits(most_texts=3, most_characters=20, most_new_tokens=9, most_bytes=10_000)


class Spelling:
    """Continues a text with its letters, a piece each."""

    name, threads = "generate", 2

    def __init__(self):
        self.calls, self.pieces = [], 0

    def __call__(self, requests):
        self.calls.append(requests)
        return [{"continuation": text[::-1]} for text, _ in requests]

    def most_new_tokens(self, given, most):
        return given or 0

    def stream(self, text, options):
        self.calls.append([(text, options)])
        for letter in text:
            if letter == "!":
                raise RuntimeError("secret path /home")
            if letter == "?":
                raise Refused("text: expected no question, got '?'.")
            self.pieces += 1
            yield letter
        return "length"


@contextlib.contextmanager
def serving(task, limits=LIMITS):
    with TestClient(create_app(task, limits), raise_server_exceptions=False) as client:
        yield lambda **body: client.post("/generate", json=body)


def events(answer):
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, last = answer.text.split("\n\n")
    assert last == "" and all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_texts_and_their_options():
    task = Spelling()
    with serving(task) as post:
        answer = post(texts=["ab", "c"], max_new_tokens=5, stop=["x"], seed=7, top_p=0.5)
        assert answer.json() == {"results": [{"continuation": "ba"}, {"continuation": "c"}]}
        options = {"max_new_tokens": 5, "stop": ["x"], "seed": 7, "top_p": 0.5}
        found = [request for call in task.calls for request in call]
        assert found == [("ab", options), ("c", {**options, "seed": 8})]
        task.calls.clear()
        post(texts=["a"], temperature=0)
        post(texts=["a"])
        [[(_, cold)], [(_, plain)]] = task.calls
        assert cold["top_k"] == 1 and "temperature" not in cold
        assert plain.keys() == {"max_new_tokens", "stop", "seed"}
        assert plain["seed"] != cold["seed"]  # unless one chance in 2^31 comes true


def test_a_stream():
    with serving(Spelling()) as post:
        found = events(post(texts=["a\né"], stream=True))
        assert found == [*({"piece": x} for x in "a\né"), {"finish_reason": "length"}]
        assert events(post(texts=[""], stream=True)) == [{"finish_reason": "length"}]


@pytest.mark.parametrize(
    "body, status, message",
    [
        ({"texts": ["a", "b"]}, 400, "texts: expected one text for a stream, got 2."),
        ({"texts": ["?"]}, 400, "text: expected no question, got '?'."),
        ({"texts": ["!"]}, 500, "RuntimeError in the model."),
        ({"texts": ["a" * 21]}, 422, "texts.0: String should have at most 20 characters"),
        ({"texts": ["a"], "max_new_tokens": 10}, 422, "max_new_tokens: Input should be less than"),
        ({"texts": ["a"], "max_new_tokens": 0}, 422, "max_new_tokens: Input should be greater"),
        ({"texts": ["a"], "temperature": -1}, 422, "temperature: Input should be greater"),
        ({"texts": ["a"], "top_k": 0}, 422, "top_k: Input should be greater"),
        ({"texts": ["a"], "top_p": 1.5}, 422, "top_p: Input should be less"),
        ({"texts": ["a"], "seed": 2**31}, 422, "seed: Input should be less"),
        ({"texts": ["a"], "temperatur": 1}, 422, "temperatur: Extra inputs are not permitted"),
        ({"texts": ["a"], "source_language": "en_XX"}, 422, "source_language: Extra inputs are"),
        ({"texts": ["a"], "stop": [""]}, 422, "stop.0: String should have at least 1 character"),
        ({"texts": ["a"], "stop": ["x"] * 17}, 422, "stop: List should have at most 16 items"),
    ],
)
def test_an_error_before_the_first_event_is_one_of_http(body, status, message):
    with serving(Spelling()) as post:
        answer = post(**body, stream=True)
        assert answer.status_code == status and list(answer.json()) == ["error"]
        assert answer.json()["error"].startswith(message)


@pytest.mark.parametrize(
    "letter, message", [("!", "RuntimeError in the model."), ("?", "text: expected no question")]
)
def test_a_later_error_is_an_event(letter, message):
    with serving(Spelling()) as post:
        first, last = events(post(texts=[f"a{letter}b"], stream=True))
        assert first == {"piece": "a"} and last["error"].startswith(message)


def test_a_client_that_leaves_stops_the_work():
    task = Spelling()
    app = create_app(task, Limits(most_characters=10_000))
    body = json.dumps({"texts": ["a" * 9_999], "stream": True}).encode()
    path = {"path": "/generate", "raw_path": b"/generate", "query_string": b"", "root_path": ""}
    scope = {"type": "http", "method": "POST", "scheme": "http", "http_version": "1.1", **path}
    scope |= {"headers": [(b"content-type", b"application/json")], "asgi": {"version": "3.0"}}

    async def main():
        left, sent = asyncio.Event(), []
        given = iter([{"type": "http.request", "body": body}])

        async def receive():
            message = next(given, None)
            if message is None:
                await left.wait()
            return message or {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if len(sent) == 4:
                left.set()
            await asyncio.sleep(0.001)

        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            count = task.pieces
            await asyncio.sleep(0.05)
            assert task.pieces <= count + 1 < 100

    asyncio.run(main())


def test_too_many_streams():
    with serving(Spelling(), Limits(most_texts=1, most_waiting=1)) as post:
        for _ in range(3):  # a finished one does not count
            assert post(texts=["ab"], stream=True).status_code == 200


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "gpt2"
    return Task(generator_folder(path, "gpt2", max_new_tokens=12))


@pytest.mark.slow
def test_a_published_decoder(task):
    generator = task._model
    texts = ["the cat", "a", "é 你"]
    with serving(task, Limits(most_new_tokens=30)) as post:

        def found(**body):
            answer = post(**body)
            assert answer.status_code == 200, answer.json()
            return [row["continuation"] for row in answer.json()["results"]]

        def expected(tensor):
            return [text.decode() for text in tensor.numpy()]

        assert found(texts=texts) == expected(generator.generate(texts))
        stop = {"stop": [" "], "max_new_tokens": 5}
        assert found(texts=texts, **stop) == expected(generator.generate(texts, **stop))
        hot = {"temperature": 1.5, "max_new_tokens": 30}
        drawn = [expected(generator.sample([t], 3 + n, **hot))[0] for n, t in enumerate(texts)]
        assert found(texts=texts, seed=3, **hot) == drawn
        assert found(texts=["a"], **hot) != found(texts=["a"], **hot)
        assert found(texts=texts, temperature=0) == expected(generator.generate(texts))
        *pieces, last = events(post(texts=texts[:1], seed=3, stream=True, **hot))
        assert "".join(piece["piece"] for piece in pieces) == drawn[0]
        assert last == {"finish_reason": "length"} and len(pieces) > 3


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_model_refuses(task, stream):
    with serving(task, Limits()) as post:
        for body, message in (
            ({"texts": ["a" * 44]}, "text: expected at most 43 tokens in each, as many as the mo"),
            ({"texts": ["a" * 40], "max_new_tokens": 9}, "max_length, max_new_tokens: expected a"),
            ({"texts": ["a"], "temperature": 1e-50}, "temperature: expected more than 0, got 0"),
        ):
            answer = post(**body, stream=stream)
            assert answer.status_code == 400 and answer.json()["error"].startswith(message)


@pytest.mark.slow
def test_a_translator_with_languages():
    folder = VECTORS / "text_to_text" / "mbart"
    cases = json.loads((folder / "cases.json").read_text("utf-8"))
    texts, expected = cases["texts"][:3], [{"continuation": x} for x in cases["greedy"][:3]]
    translator = Task(folder, source_language="en_XX", target_language="fr_XX")
    options = {"max_new_tokens": 0, "stop": []}
    other = {"source_language": "fr_XX", "target_language": "en_XX"}
    [own, reverse, again] = translator(
        [(texts[0], options), (texts[0], options | other), (texts[1], options)]
    )
    assert [own, again] == expected[:2] and reverse != own
    with serving(Task(folder), Limits()) as post:
        languages = {"source_language": "en_XX", "target_language": "fr_XX"}
        assert post(texts=texts, **languages).json()["results"] == expected
        assert post(texts=texts[:1], **other).json()["results"] == [reverse]
        *pieces, _ = events(post(texts=texts[:1], **other, stream=True))
        assert "".join(piece["piece"] for piece in pieces) == reverse["continuation"]
        for stream in (False, True):
            answer = post(texts=texts[:1], target_language="fr_XX", stream=stream)
            assert answer.status_code == 400
            assert answer.json()["error"].startswith("source_language: expected the language of")
            answer = post(texts=texts[:1], source_language="en", stream=stream)
            assert answer.status_code == 400
            assert answer.json()["error"].startswith("source_language: expected languages of the")


def test_new_tokens_by_default(task):
    assert task.most_new_tokens(None, 30) == 0 and task.most_new_tokens(7, 30) == 7
    assert task.most_new_tokens(None, 11) == 11  # fewer than the settings say


def test_the_longest_text_of_the_settings_counts(task, monkeypatch):
    longest = {"max_new_tokens": None, "max_length": 13}  # with a prompt of at least one token
    monkeypatch.setattr(task, "_settings", {**task._settings, **longest})
    assert task.most_new_tokens(None, 12) == 0 and task.most_new_tokens(None, 11) == 11
