"""Files of sentence pairs cut into parts of whole lines, which processes read side by side."""

import gzip
from dataclasses import dataclass

from tf_transformer.data.readers import (
    BYTE_ORDER_MARK,
    GZIP_MAGIC,
    check_exists,
    complete_gzip,
    decoded,
    pair_of_columns,
    text_of,
)
from tf_transformer.errors import ArgumentError

_BLOCK = 2**24  # bytes read at once while lines are counted


@dataclass(frozen=True)
class Part:
    """Consecutive lines of a TSV file, or of two files that are aligned line by line."""

    number: int
    files: tuple
    first: int
    lines: int
    starts: tuple

    def pairs(self):
        """Yield the pairs `(source, target)`, stripped strings."""
        if len(self.files) == 1:
            [path] = self.files
            for number, line in self._lines(path, "tsv", self.starts[0]):
                yield pair_of_columns(line, "tsv", path, number)
            return
        names = "source_file", "target_file"
        sides = [self._lines(*given) for given in zip(self.files, names, self.starts, strict=True)]
        for (number, source), (_, target) in zip(*sides, strict=True):
            yield (
                text_of(source, "source_file", self.files[0], number),
                text_of(target, "target_file", self.files[1], number),
            )

    def _lines(self, path, argument, start):
        with _opened(path) as file, complete_gzip(path, argument):
            if start:
                file.seek(start)
            for number, line in zip(range(self.first, self.first + self.lines), file, strict=False):
                raw = line.removesuffix(b"\n")
                if number == 1:
                    raw = raw.removeprefix(BYTE_ORDER_MARK)
                yield number, decoded(raw, argument, path, number)


def cut_into_parts(files, lines_per_part):
    """Cut files into parts."""
    parts = []
    for together in files:
        names = ("tsv",) if len(together) == 1 else ("source_file", "target_file")
        for path, name in zip(together, names, strict=True):
            check_exists(path, name)
        every = None if any(map(_is_gzipped, together)) else lines_per_part
        counted = [_line_starts(*given, every) for given in zip(together, names, strict=True)]
        lines = {path: count for path, (_, count) in zip(together, counted, strict=True)}
        if len(set(lines.values())) > 1:
            said = " and ".join(f"{count:,} lines in {path}" for path, count in lines.items())
            raise ArgumentError(
                "target_file",
                "as many lines as source_file",
                said,
                "Line n of one must translate line n of the other.",
            )
        count = max(lines.values())
        if not count:
            raise ArgumentError(names[0], f"at least one line of text in {together[0]}")
        for n, starts in enumerate(zip(*(starts for starts, _ in counted), strict=True)):
            first = n * (every or 0)
            size = min(every or count, count - first)
            parts.append(Part(len(parts), tuple(together), first + 1, size, starts))
    return parts


def _line_starts(path, argument, every):
    """Where each `every`-th line starts, and how many lines there are."""
    starts, count, position, ends = [0], 0, 0, True
    with _opened(path) as file, complete_gzip(path, argument):
        while block := file.read(_BLOCK):
            here = block.count(b"\n")
            if every and (count + here) // every > count // every:
                place = -1
                for _ in range(here):
                    place = block.index(b"\n", place + 1)
                    count += 1
                    if count % every == 0:
                        starts.append(position + place + 1)
            else:
                count += here
            position += len(block)
            ends = block.endswith(b"\n")
    count += not ends
    return starts[: -(-count // every)] if every else starts, count


def _is_gzipped(path):
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _opened(path):
    return gzip.open(path) if _is_gzipped(path) else open(path, "rb")
