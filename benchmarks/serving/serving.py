"""Many clients and one server: `python -m benchmarks serving`.

The included translator behind `tf-transformer serve`, and CTranslate2 with the same weights behind
the same server. In each round every server in turn answers its share of the requests, of one to
three English sentences of all lengths in the corpus, from clients that ask again as soon as they
have their answer. Writes results/PROCESSOR/serving.md. Needs `pip install -e ".[bench,train]"`.
"""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import random
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.environments import interpreter, start
from benchmarks.harness.report import spread, write_result
from benchmarks.serving.server import FLOAT32, INT8, OWN
from benchmarks.training.scale import free_ports

ENGINES = (OWN, FLOAT32, INT8)
LIBRARY = "served"
WARM = 100  # requests before the first round, and those that are profiled at the end
REMARK = """\
The included English-Chinese model, greedy, behind the same server with its default limits, on all
cores. {rounds} rounds, in each {requests:,} requests to every server in turn, from {clients}
clients on the same machine, after {warm} requests to warm up. A request has one to three sentences,
{texts:,} in all; each length in words is drawn as often as any other. CTranslate2 has the same
weights and the same tokenizer. Other programs ran on the machine: compare the figures with each
other only. Latencies are those of all requests as a client sees them; requests a second the median
of the rounds, beside it how many times as fast as this library, with the range over the rounds.
"Traced, compiled": graphs of TensorFlow and programs of XLA that {warm} more requests made. "Same
translations": as this library's.
"""


def main(parser, arguments):
    """Start the servers, ask, write."""
    parser.add_argument("--requests", type=int, default=1000, help="to each server in a round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args(arguments)
    interpreter(LIBRARY)  # installed before anything is timed
    asked = draw_requests(options.rounds * options.requests, seed=1)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(served(engine)) for engine in ENGINES]
        for server in servers:
            server.ask(asked[:WARM], options.clients)
        rounds = {server.engine: [] for server in servers}
        for n in range(options.rounds):
            some = asked[n * options.requests : (n + 1) * options.requests]
            for server in servers:
                rounds[server.engine].append(server.ask(some, options.clients))
            print(f"round {n + 1} of {options.rounds}", file=sys.stderr, flush=True)
        built = {server.engine: server.profile(asked[:WARM], options.clients) for server in servers}
    remark = REMARK.format(**vars(options), warm=WARM, texts=sum(map(len, asked)))
    write_result("serving", "The server under load", [remark, table(rounds, built)], "")


def draw_requests(count, seed):
    """Requests, lists of one to three sentences; each length in words is drawn equally often."""
    from tf_transformer.data import load_corpus

    by_length = collections.defaultdict(list)
    for sentence in sorted({source for source, _ in load_corpus("en-zh")}):
        by_length[len(sentence.split())].append(sentence)
    lengths, chance = sorted(by_length), random.Random(seed)
    return [
        [chance.choice(by_length[chance.choice(lengths)]) for _ in range(chance.randint(1, 3))]
        for _ in range(count)
    ]


@contextlib.contextmanager
def served(engine):
    """A server in its own process, once it answers."""
    [port] = free_ports(1)
    with start(LIBRARY, "benchmarks.serving.server", engine, str(port)) as process:
        try:
            server = Server(engine, port, process)
            while not server.is_up():
                if process.poll() is not None:
                    raise RuntimeError(f"{engine}: the server ended with {process.returncode}.")
                time.sleep(0.2)
            yield server
        finally:
            process.kill()


class Server:
    """A server in another process.

    Args:
        engine: str.
        port: int.
        process: `subprocess.Popen`.
    """

    def __init__(self, engine, port, process):
        self.engine, self._port, self._process = engine, port, process

    def is_up(self):
        """Whether it accepts connections."""
        with contextlib.suppress(ConnectionRefusedError):
            self._connect().connect()
            return True
        return False

    def ask(self, requests, clients):
        """Send requests from several clients, each with one connection.

        Returns:
            dict: `seconds` and `statuses` of each request, `answers` (text to translation),
            `elapsed` seconds and the `memory` of the process after them, in MiB.
        """
        found = {"seconds": [], "statuses": [], "answers": {}}
        waiting = iter(requests)  # one for all clients
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(clients) as threads:
            for client in [threads.submit(self._client, waiting, found) for _ in range(clients)]:
                client.result()
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        memory = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024
        return {**found, "elapsed": time.perf_counter() - begin, "memory": memory}

    def profile(self, requests, clients):
        """Send requests and count what they trace and compile: dict, `traces` and `xla`."""
        self._post(self._connect(), "/profile/start")
        self.ask(requests, clients)
        return self._post(self._connect(), "/profile/stop")[1]

    def _client(self, waiting, found):
        connection = self._connect()
        for texts in waiting:
            begin = time.perf_counter()
            status, answer = self._post(connection, "/translate", {"texts": texts})
            found["seconds"].append(time.perf_counter() - begin)
            found["statuses"].append(status)
            if status == 200:
                translations = (row["translation"] for row in answer["results"])
                found["answers"].update(zip(texts, translations, strict=True))

    def _connect(self):
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)

    def _post(self, connection, path, content=None):
        headers = {"content-type": "application/json"}
        connection.request("POST", path, json.dumps(content), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def table(rounds, built):
    """Markdown: what the clients of each server saw, and what it took."""
    lines = [
        "| | requests a second | / tf_transformer | p50, ms | p95, ms | p99, ms | statuses | "
        "MiB after the first and the last round | traced, compiled | same translations |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for engine, found in rounds.items():
        pairs = list(zip(rounds[OWN], found, strict=True))
        speed = statistics.median(len(one["seconds"]) / one["elapsed"] for one in found)
        faster = spread([own["elapsed"] / one["elapsed"] for own, one in pairs])
        seconds = [x for one in found for x in one["seconds"]]
        p50, p95, p99 = 1000 * np.percentile(seconds, [50, 95, 99])
        counts = collections.Counter(status for one in found for status in one["statuses"])
        statuses = ", ".join(f"{count:,} x {status}" for status, count in counts.items())
        same = np.mean(
            [
                own["answers"][text] == translation
                for own, one in pairs
                for text, translation in one["answers"].items()
            ]
        )
        lines.append(
            f"| {engine} | {speed:,.1f} | {faster} | {p50:,.0f} | {p95:,.0f} | {p99:,.0f} | "
            f"{statuses} | {found[0]['memory']:,.0f}, {found[-1]['memory']:,.0f} | "
            f"{built[engine]['traces']}, {built[engine]['xla']} | {same:.1%} |"
        )
    return "\n".join(lines)
