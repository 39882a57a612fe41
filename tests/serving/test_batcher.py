"""Texts of several requests are computed together, and each request gets its own results."""

import asyncio
import threading

import pytest

from tf_transformer.serving import Batcher, Limits, Overloaded


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20))


class Model:
    """Converts to upper case, records batches, waits until released, and fails for some texts."""

    def __init__(self, held=False):
        self.batches, self.may_go = [], threading.Event()
        if not held:
            self.may_go.set()

    def __call__(self, texts):
        self.batches.append(list(texts))
        self.may_go.wait(10)
        if "poison" in texts:
            raise ValueError("poison")
        return [text.upper() for text in texts]


async def requests(batcher, *texts):
    try:
        return await asyncio.gather(*map(batcher, texts), return_exceptions=True)
    finally:
        await batcher.close()


def test_requests_that_arrive_together_share_batches_of_bounded_size():
    async def main():
        batcher = Batcher(model, Limits(most_batch=4, wait=0.05))
        return await requests(batcher, *([f"{n}a", f"{n}b"] for n in range(5)))

    model = Model()
    found = run(main())
    assert found == [[f"{n}A", f"{n}B"] for n in range(5)]
    assert [len(batch) for batch in model.batches] == [4, 4, 2]


def test_one_poisoned_text_costs_only_its_own_request():
    async def main():
        batcher = Batcher(model, Limits(wait=0.05))
        return await requests(batcher, ["a"], ["b", "poison"], ["c"])

    model = Model()
    first, second, third = run(main())
    assert (first, third) == (["A"], ["C"]) and str(second) == "poison"
    assert model.batches[0] == ["a", "b", "poison", "c"] and len(model.batches) == 5


def test_too_many_waiting_texts_are_refused_and_later_ones_accepted():
    async def main():
        batcher = Batcher(model, Limits(most_batch=1, most_waiting=3, most_texts=3, wait=0))
        running = asyncio.create_task(batcher(["a"]))
        while not model.batches:
            await asyncio.sleep(0.01)
        waiting = asyncio.create_task(batcher(["b", "c", "d"]))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="3 texts are waiting"):
            await batcher(["e"])
        model.may_go.set()
        assert await running == ["A"] and await waiting == ["B", "C", "D"]
        assert await batcher(["f"]) == ["F"]
        await batcher.close()

    model = Model(held=True)
    run(main())


def test_batches_side_by_side():
    async def main():
        batcher = Batcher(model, Limits(most_batch=1, wait=0), threads=2)
        both = asyncio.create_task(requests(batcher, ["a"], ["b"]))
        for _ in range(500):
            if len(model.batches) == 2:
                break
            await asyncio.sleep(0.01)
        model.may_go.set()
        return await both

    model = Model(held=True)
    assert run(main()) == [["A"], ["B"]] and len(model.batches) == 2


def test_a_client_that_leaves_disturbs_nobody():
    async def main():
        batcher = Batcher(model, Limits(wait=0.05))
        leaving, staying = (asyncio.create_task(batcher([text])) for text in ("a", "b"))
        await asyncio.sleep(0.01)
        leaving.cancel()
        found = await staying
        await batcher.close()
        return found

    model = Model()
    assert run(main()) == ["B"] and model.batches == [["b"]]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"most_batch": 0}, "most_batch: expected a positive number, got 0"),
        ({"wait": -1.0}, "wait: expected a positive number, got -1.0"),
        (
            {"most_waiting": 9, "most_texts": 10},
            "most_waiting: expected at least 10, the texts",
        ),
    ],
)
def test_bad_limits(options, message):
    with pytest.raises(ValueError, match=message):
        Limits(**options)
