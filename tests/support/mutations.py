"""Damage done to files on purpose: to bytes, JSON, and the formats whose checksums must stay right.

Every function takes a `random.Random`, so that a seed gives the same file again.
"""

import ast
import copy
import functools
import io
import json
import struct
import zipfile

import numpy as np
from tensorflow.core.protobuf import tensor_bundle_pb2

SIZES = (-1, 0, 1, 2, 7, 255, 2**16, 10**6, 2**31 - 1, 2**31, 2**33, 2**40, 2**62, 2**63, 2**64)
VALUES = (
    *(None, True, False, *SIZES, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "a", "0", "\0", "\ud800", "é\U0001f600", "../../x", "/etc/passwd", ".", "x" * 50_000),
    *([], {}, [[]], [1, 2, 3], ["a", "b"], {"a": 1}, [{}], [None], {"": {}}),
)
NESTED = 100_000  # levels, far more than any parser follows


def of_bytes(rng, data):
    """Flip, cut, insert, repeat or overwrite, once or a few times."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        length = rng.choice((1, 2, 4, 8, rng.randrange(64)))
        damage = rng.randrange(6)
        if damage == 0 and data:
            data[place % len(data)] ^= 1 << rng.randrange(8)
        elif damage == 1:
            del data[place : place + rng.choice((length, len(data)))]
        elif damage == 2:
            data[place:place] = rng.randbytes(length)
        elif damage == 3:
            data[place:place] = data[place : place + length] * rng.choice((1, 2, 50))
        elif damage == 4:
            data[place : place + length] = bytes([rng.choice((0, 255, 10, 34))]) * length
        else:
            data[place : place + 8] = struct.pack("<Q", rng.choice(SIZES) % 2**64)
    return bytes(data)


def of_content(rng, content):
    """Change one place of JSON content: another value or type, one key or item more or fewer."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(content))
        if not places:
            return rng.choice(VALUES)
        home, key = rng.choice(places)
        damage = rng.randrange(6)
        if damage <= 2:
            home[key] = copy.deepcopy(rng.choice(VALUES))
        elif damage == 3:
            del home[key]
        elif damage == 4:
            other, name = rng.choice(places)
            home[key] = copy.deepcopy(other[name])
        elif isinstance(home, list):
            home[key:key] = home[key : key + 1] * rng.choice((1, 3))
        else:
            home[rng.choice(("", "unknown", f"{key}_", "\ud800", "__class__"))] = home[key]
    return content


def _places(content):
    """Yield (dict or list, key) of everything inside."""
    pairs = ()
    if isinstance(content, dict):
        pairs = content.items()
    elif isinstance(content, list):
        pairs = enumerate(content)
    for key, value in list(pairs):
        yield content, key
        yield from _places(value)


def of_json(rng, data):
    """Change the content of a JSON file, or its text."""
    damage = rng.randrange(10)
    if damage == 0:
        return of_bytes(rng, data)
    if damage == 1:
        text, place = data.decode(), rng.choice([i for i, byte in enumerate(data) if byte > 32])
        twice = text[:1] + text[1:-1].strip() + "," + text[1:] if text[:1] == "{" else text
        return rng.choice(
            (
                twice,
                f"{text[:place]}{'[' * NESTED}{text[place:]}",
                f"{'[' * NESTED}{']' * NESTED}",
                '{"a":' * NESTED + "1" + "}" * NESTED,
                text.replace("1", "1" * 5000, 1),
                text.replace("1", "1e-99999999", 1),
                f"\ufeff{text}",
                text[:place],
            )
        ).encode()
    return json.dumps(of_content(rng, json.loads(data))).encode()


def of_safetensors(rng, data):
    """Change the header: its length, offsets, shapes, dtypes, names; or any bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    damage = rng.randrange(5)
    if damage == 0:
        return of_bytes(rng, data)
    if damage == 1:
        return struct.pack("<Q", rng.choice((*SIZES, length - 1, length + 1)) % 2**64) + data[8:]
    if damage == 2:
        text = of_json(rng, json.dumps(header).encode())
    elif damage == 3:
        tensor = rng.choice([value for key, value in header.items() if key != "__metadata__"])
        tensor["dtype"] = rng.choice(("F64", "F16", "BF16", "I64", "BOOL", "F4", "F8_E4M3", "x"))
        tensor["shape"] = [rng.choice(SIZES) for _ in range(rng.randrange(4))]
        text = json.dumps(header).encode()
    else:
        text = json.dumps(of_content(rng, header)).encode()
    return struct.pack("<Q", len(text)) + text + body


def of_npy(rng, data):
    """Change the header of an array: object types, huge shapes, deep nesting; or any bytes."""
    damage = rng.randrange(4)
    if damage == 0:
        return of_bytes(rng, data)
    length = struct.unpack("<H", data[8:10])[0]
    text, body = data[10 : 10 + length].decode("latin-1"), data[10 + length :]
    if damage == 1:
        text = of_bytes(rng, text.encode()).decode("latin-1")
    elif damage == 2:
        text = rng.choice(("(" * 5000, "-" * 5000, "[" * 90 + "]" * 90, "'", "{1:\n 2", "1L", ""))
    else:
        header = ast.literal_eval(text)
        shape = tuple(rng.choice(SIZES) for _ in range(rng.randrange(4)))
        types = ("|O", "<f4", "<f8", "|V8", "<U4000000", "<c16", "<M8[s]", "x", [("a", "|O")], 3)
        change = {
            "shape": shape,
            "descr": rng.choice(types),
            "fortran_order": rng.choice((1, True)),
        }
        for name in rng.sample(sorted(change), rng.randrange(1, 4)):
            header[name] = change[name]
        text = repr(header)
    text = text.encode("latin-1")[: 2**16 - 1]
    return data[:8] + struct.pack("<H", len(text)) + text + body


def of_npz(rng, data, seal=dict):
    """Change an archive: a member, its compression, or any bytes.

    `seal` puts right what depends on the other members: bytes by name -> the same.
    """
    damage = rng.randrange(5)
    if damage == 0:
        return of_bytes(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    kind = zipfile.ZIP_STORED
    if damage == 1:
        kind = zipfile.ZIP_DEFLATED
        members[name] += bytes(rng.choice((0, 2**28)))  # a bomb: a thousandth of that in the file
    elif damage == 2:
        del members[name]
    elif damage == 3:
        members[f"{rng.choice(('../x', '/x', 'x', 'state'))}.npy"] = members[name]
    else:
        members[name] = of_npy(rng, members[name])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, content in seal(members).items():
            archive.writestr(name, content)
    return out.getvalue()


def of_tfrecord(rng, data):
    """Change a record or the length of one; its checksums are right again."""
    if rng.randrange(4) == 0:
        return of_bytes(rng, data)
    records, place = [], 0
    while place < len(data):
        (length,) = struct.unpack("<Q", data[place : place + 8])
        records.append(data[place + 12 : place + 12 + length])
        place += length + 16
    number = rng.randrange(len(records))
    lengths = list(map(len, records))
    if rng.randrange(2):
        lengths[number] = rng.choice((*SIZES, lengths[number] + 1)) % 2**64
    else:
        records[number] = of_bytes(rng, records[number])
        lengths[number] = len(records[number])
    parts = []
    for length, record in zip(lengths, records, strict=True):
        head = struct.pack("<Q", length)
        parts += [head, masked_crc(head), record, masked_crc(record)]
    return b"".join(parts)


def of_bundle(rng, data):
    """Change the index of a TensorFlow checkpoint: an entry or its key, with right checksums."""
    damage = rng.randrange(4)
    if damage == 0:
        return of_bytes(rng, data)
    entries = dict(_table_entries(data))
    key = rng.choice(sorted(entries))
    if damage == 1 or not key:
        entries[key] = of_bytes(rng, entries[key])
    elif damage == 2:
        entries[of_bytes(rng, key)] = entries.pop(key)
    else:
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(entries[key])
        change = rng.randrange(6)
        if change == 0:
            entry.dtype = rng.choice((*range(31), 101, 127, 1000))
        elif change == 1:
            del entry.shape.dim[:]
            for _ in range(rng.choice((0, 1, 2, 3, 255))):
                entry.shape.dim.add().size = rng.choice(SIZES[:13])
        elif change == 2:
            entry.size = rng.choice(SIZES[:13])
        elif change == 3:
            entry.offset = rng.choice(SIZES[:13])
        elif change == 4:
            entry.shard_id = rng.choice((-1, 1, 7, 2**31 - 1))
        else:
            entry.slices.add().extent.add().start = rng.choice(SIZES[:13])
        entries[key] = entry.SerializeToString()
    return _table(sorted(entries.items()))


def _table_entries(data):
    """Yield the keys and values of a table of one block, as a small checkpoint has."""
    _, place = _varint(data, len(data) - 48)  # the footer: two handles of a block
    _, place = _varint(data, place)
    start, place = _varint(data, place)
    size, _ = _varint(data, place)
    for _, handle in _block_entries(data[start : start + size]):
        start, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        yield from _block_entries(data[start : start + size])


def _block_entries(block):
    (restarts,) = struct.unpack("<I", block[-4:])
    place, key = 0, b""
    while place < len(block) - 4 - 4 * restarts:
        shared, place = _varint(block, place)
        own, place = _varint(block, place)
        size, place = _varint(block, place)
        key = key[:shared] + block[place : place + own]
        yield key, block[place + own : place + own + size]
        place += own + size


def _table(entries):
    """A table of LevelDB's format with one block."""
    data = _block(entries)
    handle = _number(0) + _number(len(data) - 5)
    meta, index = _block([]), _block([(entries[-1][0] + b"\xff", handle)])
    handles = [
        _number(part) for part in (len(data), len(meta) - 5, len(data) + len(meta), len(index) - 5)
    ]
    footer = b"".join(handles).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    return data + meta + index + footer


def _block(entries):
    starts, body = [], b""
    for key, value in entries:
        starts.append(len(body))
        body += _number(0) + _number(len(key)) + _number(len(value)) + key + value
    starts = starts or [0]
    body += struct.pack(f"<{len(starts) + 1}I", *starts, len(starts)) + b"\0"
    return body + masked_crc(body)


def _varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _number(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


@functools.cache
def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table.tolist()


def masked_crc(data):
    """TensorFlow's checksum of bytes, as four bytes."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
