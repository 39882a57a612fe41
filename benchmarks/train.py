"""Training beside keras-hub and torch: `python benchmarks/train.py` writes results/train.md."""

import argparse

from side_by_side import compare, table, write_result


def main():
    """Run the rounds with the preset's dropout and without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=60, help="of the small preset")
    options = parser.parse_args()
    parts = []
    for rate, remark in (
        ("0.1", "The peers drop attention weights too; here, as in the notes, nothing does."),
        ("0.0", "The same work for all."),
    ):
        results = compare(options.batches, options.rounds, "--rate", rate)
        losses = ", ".join(f"{name} {rows[0]['loss'][1]:.2f}" for name, rows in results.items())
        parts.append(
            f"## Dropout {rate}\n\n{remark} Mean loss of the second epoch: {losses}.\n\n"
            f"{table(results)}"
        )
    write_result("train", "Training, beside its peers", parts)


if __name__ == "__main__":
    main()
