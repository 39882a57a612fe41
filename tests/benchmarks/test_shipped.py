"""The sentences that teachers translate for the included model."""

from benchmarks.translation.shipped import english
from tf_transformer.data import Split


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
