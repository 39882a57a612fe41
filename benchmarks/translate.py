"""Greedy decoding beside keras-hub and torch: `python benchmarks/translate.py`."""

import argparse

from side_by_side import compare, table, write_result


def main():
    """Run the rounds for two lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=20, help="of the small preset")
    options = parser.parse_args()
    parts = []
    for steps in ("16", "64"):
        results = compare("translate", options.batches, options.rounds, "--steps", steps)
        parts.append(f"## {steps} tokens a sentence\n\n{table(results)}")
    write_result("translate", "Greedy decoding, beside its peers", parts)


if __name__ == "__main__":
    main()
