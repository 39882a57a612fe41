"""BLEU and chrF of translations."""

import re

from tf_transformer.errors import ArgumentError, MissingPackage

_IDEOGRAPHS = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_SYLLABLES = re.compile("[\u3040-\u30ff\uac00-\ud7af]")  # kana and hangul


def score_translations(hypotheses, references, language):
    """Compute BLEU and chrF of a whole test set, with all references of every sentence.

    Papineni et al. 2002; Popović 2015; Post 2018 for the signature that makes scores comparable.

    Args:
        hypotheses: list of str, the translations.
        references: list of lists of str, at least one for each hypothesis; their number may
            differ from sentence to sentence.
        language: str, code of the target language, or "" if unknown: "zh", "ja" and "ko" are split
            into characters, all others with sacreBLEU's default "13a", unless the references are
            mostly written in the scripts of these three.

    Returns:
        dict with `bleu`, `bleu_signature`, `chrf`, `chrf_signature`, `sentences`.

    Raises:
        ValueError: If the numbers do not match, there is no sentence, or a sentence has no
            reference.
        ImportError: If sacreBLEU is not installed.

    Example:
        >>> round(score_translations(["我爱你。"], [["我爱你。", "我愛你。"]], "zh")["bleu"])
        100
    """
    if len(hypotheses) != len(references) or not hypotheses:
        expected = "as many lists of references as translations, and at least one"
        got = f"{len(hypotheses)} and {len(references)}"
        raise ArgumentError("hypotheses, references", expected, got)
    if not all(references):
        got = f"none for sentence {[bool(row) for row in references].index(False)}"
        raise ArgumentError("references", "at least one for each sentence", got)
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise MissingPackage('scoring needs sacreBLEU: pip install -e ".[train]"') from error
    tokenize = {"zh": "zh", "ja": "char", "ko": "char"}.get(language) or _tokenizer(references)
    most = max(len(row) for row in references)
    # sacreBLEU expects one list per reference index; None marks a missing reference.
    columns = [[row[i] if i < len(row) else None for row in references] for i in range(most)]
    bleu, chrf = BLEU(tokenize=tokenize), CHRF()
    return {
        "bleu": round(bleu.corpus_score(hypotheses, columns).score, 2),
        "bleu_signature": str(bleu.get_signature()),
        "chrf": round(chrf.corpus_score(hypotheses, columns).score, 2),
        "chrf_signature": str(chrf.get_signature()),
        "sentences": len(hypotheses),
    }


def _tokenizer(references):
    """Choose by script: 13a needs spaces between words, and could score a good translation 0."""
    text = "".join("".join(row) for row in references)
    ideographs, syllables = (len(part.findall(text)) for part in (_IDEOGRAPHS, _SYLLABLES))
    if 2 * (ideographs + syllables) <= len("".join(text.split())):
        return "13a"
    return "char" if 4 * syllables > ideographs else "zh"
