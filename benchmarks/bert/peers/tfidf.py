"""TF-IDF with logistic regression on a set of `load_labelled_texts`.

`python -m benchmarks.bert.peers.tfidf SET ARCHIVE` prints JSON: the setting with the best
validation accuracy, its accuracy on the test part, and the probabilities of the classes there.
"""

import json
import sys

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tf_transformer.data import load_labelled_texts

FEATURES = {
    "words and pairs": {"token_pattern": r"\S+", "ngram_range": (1, 2)},
    "1 to 2 characters": {"analyzer": "char", "ngram_range": (1, 2), "min_df": 2},
    "1 to 3 characters": {"analyzer": "char", "ngram_range": (1, 3), "min_df": 2},
}


def main(name, archive):
    """Try all settings."""
    data = load_labelled_texts(name, archive)
    parts = (data.train, data.validation, data.test)
    (train, labels), validation, test = (list(zip(*part, strict=True)) for part in parts)
    best = {"validation": 0.0}
    for features, options in FEATURES.items():
        for c in (1, 10, 100):
            model = make_pipeline(
                TfidfVectorizer(sublinear_tf=True, **options),
                LogisticRegression(C=c, max_iter=2000),
            ).fit(train, labels)
            score = model.score(*validation)
            if score > best["validation"]:
                best = {"features": features, "C": c, "validation": score}
                best["test"] = model.score(*test)
                best["probabilities"] = model.predict_proba(test[0]).tolist()
    print(json.dumps(best))


if __name__ == "__main__":
    main(*sys.argv[1:])
