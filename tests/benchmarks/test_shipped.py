"""The sentences that teachers translate for the included model."""

from benchmarks.translation.shipped import english, load_split, tuning_pairs
from tf_transformer.data import Split, load_corpus, split_pairs


def test_no_held_out_sentence_is_translated(tmp_path):
    split = Split(
        train=[("Hi.", "嗨。"), ("Run!", "跑！"), ("Hi.", "你好。")],
        validation=[("Wait!", "等等！")],
        test=[("Stop!", "停！")],
    )
    file = tmp_path / "fra.txt"
    lines = [
        "run!\tCours !",
        "Hi.\tSalut.",
        "stop!\tArrête !",
        "WAIT!\tAttends !",
        "Go on, Zed.\tOui",
    ]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    texts = english([file], split, 10**9)
    assert texts[:2] == ["Hi.", "Run!"] and len(set(texts)) == len(texts)
    assert "Go on, Zed." in texts and not {"stop!", "WAIT!", "Stop!", "Wait!"} & set(texts)
    some = english([file], split, 5)
    assert len(some) == 7 and set(some) <= set(texts)


def test_no_further_pair_shares_a_held_out_sentence(tmp_path):
    corpus = split_pairs(load_corpus("en-zh"))
    source, target = corpus.test[0]
    rows = [
        ("Zed is here.", "泽德在这里。"),
        (source, "一"),
        (source.upper(), "二"),
        ("One", target),
    ]
    file = tmp_path / "more.tsv"
    file.write_text("".join(f"{one}\t{other}\n" for one, other in rows), "utf-8")
    split = load_split([file])
    assert split.train == [*corpus.train, rows[0]] and split.test == corpus.test
    assert load_split([]) == corpus


def test_short_pairs_are_repeated():
    pairs = [("Nice to meet you.", "很高兴认识你。"), ("One two three four five.", "一二三四五。")]
    assert tuning_pairs(pairs) == pairs + pairs[:1] * 3
