"""What the server answers, and what it refuses."""

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tf_transformer.errors import ArgumentError
from tf_transformer.serving import Limits, create_app

JSON = {"content-type": "application/json"}


class Task:
    """Reverses texts; fails for some."""

    name, threads = "translate", 2

    def __call__(self, texts):
        if "poison" in texts:
            raise RuntimeError("secret path /home")
        if "strange" in texts:
            raise ArgumentError("texts", "text of this world", "'strange'")
        if "damaged" in texts:
            raise ArgumentError("path", "a model", "a damaged one", place="/home/secret")
        return [{"translation": text[::-1]} for text in texts]


@pytest.fixture
def client():
    limits = Limits(most_texts=3, most_characters=10, most_bytes=200)
    with TestClient(create_app(Task(), limits), raise_server_exceptions=False) as client:
        yield client


def test_results_in_the_order_of_the_texts(client):
    answer = client.post("/translate", json={"texts": ["ab", "", "c\x00\u2028d"]})
    assert answer.status_code == 200
    found = [row["translation"] for row in answer.json()["results"]]
    assert found == ["ba", "", "d\u2028\x00c"]


@pytest.mark.parametrize(
    "content, status, message",
    [
        (b"{", 400, "JSON decode error"),
        (b'{"texts": ["\xff"]}', 400, ""),
        (b"{}", 422, "texts: Field required"),
        (b'{"texts": []}', 422, "texts: List should have at least 1 item"),
        (b'{"texts": ["a", "b", "c", "d"]}', 422, "texts: List should have at most 3 items"),
        (b'{"texts": "a"}', 422, "texts: Input should be a valid list"),
        (b'{"texts": [1]}', 422, "texts.0: Input should be a valid string"),
        (b'{"texts": ["a", "01234567890"]}', 422, "texts.1: String should have at most 10 char"),
        (b'{"texts": ["a", "\\ud800"]}', 422, "texts.1: Input should be a valid string, unable"),
        (b'{"texts": ["%s"]}' % (b"a" * 300), 413, "body: expected at most 200 bytes, got more"),
    ],
)
def test_refused(client, content, status, message):
    answer = client.post("/translate", content=content, headers=JSON)
    assert answer.status_code == status and list(answer.json()) == ["error"]
    assert message in answer.json()["error"] and len(answer.content) < 200
    assert client.post("/translate", json={"texts": ["ab"]}).status_code == 200


def test_only_an_error_about_the_texts_is_the_clients(client):
    answer = client.post("/translate", json={"texts": ["good", "strange"]})
    message = "texts: expected text of this world, got 'strange'."
    assert (answer.status_code, answer.json()) == (400, {"error": message})
    answer = client.post("/translate", json={"texts": ["damaged"]})
    assert (answer.status_code, answer.json()) == (500, {"error": "ArgumentError in the model."})


def test_an_error_of_the_model_says_nothing_of_the_machine(client):
    answer = client.post("/translate", json={"texts": ["poison"]})
    assert (answer.status_code, answer.json()) == (500, {"error": "RuntimeError in the model."})


def test_too_much_to_do(monkeypatch):
    limits = Limits(most_texts=1, most_waiting=1)
    with TestClient(create_app(Task(), limits)) as client:
        monkeypatch.setattr("tf_transformer.serving.Batcher.waiting", 1)
        answer = client.post("/translate", json={"texts": ["a"]})
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    assert answer.json() == {"error": "1 texts are waiting."}


def test_health_counters_and_description(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    client.post("/translate", json={"texts": ["a"]})
    client.post("/translate", content=b"{", headers=JSON)
    lines = client.get("/metrics").text.splitlines()
    assert 'requests_total{status="200"} 1.0' in lines
    assert 'requests_total{status="400"} 1.0' in lines
    assert "request_seconds_count 2.0" in lines and "waiting_texts 0.0" in lines
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/translate", "/healthz", "/metrics"}
    texts = described["components"]["schemas"]["Texts"]["properties"]["texts"]
    assert (texts["maxItems"], texts["items"]["maxLength"]) == (3, 10)
    assert client.get("/docs").status_code == 200
    assert client.get("/translate").status_code == 405
    answer = client.get("/etc/passwd")
    assert answer.status_code == 404 and answer.json() == {"error": "Not Found"}


def test_a_body_in_many_pieces_is_refused_early():
    from tf_transformer.serving import BodyLimit

    async def main():
        async def receive():
            read.append(1)
            return {"type": "http.request", "body": b"x" * 40, "more_body": True}

        async def send(message):
            sent.append(message)

        await BodyLimit(None, most=100)({"type": "http"}, receive, send)

    import asyncio

    read, sent = [], []
    asyncio.run(main())
    assert len(read) == 3 and sent[0]["status"] == 413
    assert json.loads(sent[1]["body"])["error"].startswith("body: expected at most 100 bytes")


def test_vectors_keep_float32():
    class Encoder(Task):
        name = "embed"

        def __call__(self, texts):
            return [{"vector": np.float32([0.1, 1 / 3]).tolist()} for _ in texts]

    with TestClient(create_app(Encoder())) as client:
        [row] = client.post("/embed", json={"texts": ["a"]}).json()["results"]
    np.testing.assert_array_equal(np.float32(row["vector"]), np.float32([0.1, 1 / 3]))
