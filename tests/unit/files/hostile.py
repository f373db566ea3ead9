"""Model files made to break readers: name → bytes, and words that the refusal must contain."""

import struct
from dataclasses import replace

from forge import U64_MAX, Gguf, Info, array, entry, gguf_with, good_gguf, pair, safetensors, text, u32, u64

Case = tuple[bytes, str]

_SCALAR_TYPES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_BLOCK_TYPES = {2: 32, 3: 32, 6: 32, 7: 32, 8: 32, 10: 256, 11: 256, 12: 256, 13: 256, 14: 256, 20: 32, 23: 256}
_HUGE = (U64_MAX, 2**63, 2**61 + 1, 2**32, 10**7)


def _one_pair(value: bytes, type_number: int, key: bytes | str = "bad.key") -> bytes:
    return Gguf(pairs=[pair(key, type_number, value)], padded=False).encode()


def _one_tensor(data: bytes = bytes(32), **fields: object) -> bytes:
    return Gguf(infos=[replace(Info("bad.tensor"), **fields)], data=data).encode()  # type: ignore[arg-type]


def _alignment(type_number: int, value: bytes) -> bytes:
    return Gguf(pairs=[pair("general.alignment", type_number, value)], infos=[Info()], data=bytes(32)).encode()


def gguf_cases() -> dict[str, Case]:
    """Hostile GGUF files."""
    return {**_headers(), **_metadata(), **_arrays(), **_tensor_lists(), **_tensor_data()}


def _headers() -> dict[str, Case]:
    good = good_gguf().encode()
    cases: dict[str, Case] = {
        "empty": (b"", "empty"),
        "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    }
    cases |= {f"cut to {size} bytes": (good[:size], "truncated") for size in (1, 3, 4, 7, 8, 15, 16, 23)}
    magics = {
        "swapped": b"FUGG",
        "ggml": b"lmgg",
        "lower": b"gguf",
        "zip": b"PK\x03\x04",
        "elf": b"\x7fELF",
        "nul": bytes(4),
    }
    cases |= {f"magic {name}": (gguf_with(magic=magic), "not a GGUF file") for name, magic in magics.items()}
    cases["a web page"] = (b"<!DOCTYPE html><html><body>404 Not Found</body></html>", "not a GGUF file")
    cases["one key more than there is"] = (gguf_with(num_pairs=9), "")
    cases["one tensor more than there is"] = (gguf_with(num_tensors=4), "tensor number 3")
    cases["big endian"] = (gguf_with(version=0x03000000), "big endian")
    cases["big endian, version 2"] = (gguf_with(version=0x02000000), "big endian")
    cases["version 1"] = (gguf_with(version=1), "version 1")
    for version in (0, 4, 99, 2**32 - 1):
        cases[f"version {version}"] = (gguf_with(version=version), f"version {version}")
    for count in (*_HUGE, 10**6):
        cases[f"{count} keys"] = (gguf_with(num_pairs=count, num_tensors=0), "key")
        cases[f"{count} tensors"] = (gguf_with(num_tensors=count), "tensor")
    return cases


def _metadata() -> dict[str, Case]:
    cases: dict[str, Case] = {
        "empty key": (_one_pair(bytes(8), 12, key=""), "number 0"),
        "key of 65536 bytes": (_one_pair(b"\x00", 0, key="k" * 65536), "65535"),
        "key is not UTF-8": (_one_pair(b"\x00", 0, key=b"\xff\xfe"), "UTF-8"),
        "key twice": (Gguf(pairs=[pair("same", 0, b"\0"), pair("same", 0, b"\0")]).encode(), "'same': occurs twice"),
        "string is not UTF-8": (_one_pair(text(b"ab\xc3"), 8), "'bad.key': the string is not valid UTF-8"),
        "surrogate in a string": (_one_pair(text(b"\xed\xa0\x80"), 8), "UTF-8"),
        "value missing": (_one_pair(b"", 12), "'bad.key': the value"),
        "type missing": (Gguf(pairs=[text("bad.key") + b"\0\0"]).encode()[: 24 + 8 + 7 + 2], "'bad.key': type"),
    }
    for length in (*_HUGE, 40):
        cases[f"key of length {length}"] = (Gguf(pairs=[text("k", length=length) + bytes(20)]).encode(), "the key")
        cases[f"string of length {length}"] = (_one_pair(text("k", length=length), 8), "'bad.key': the string")
    for number in (13, 14, 255, 2**31, 2**32 - 1):
        cases[f"value type {number}"] = (_one_pair(bytes(16), number), f"'bad.key': value type {number}")
    for flag in (2, 127, 255):
        cases[f"boolean {flag}"] = (_one_pair(bytes([flag]), 7), f"'bad.key': a boolean is {flag}")
    for value in (0, 3, 12, 33, 2**31 + 1, 2**32 - 1):
        cases[f"alignment {value}"] = (_alignment(4, u32(value)), f"'general.alignment': is {value}")
    others = {0: b"\x20", 2: b"\x20\0", 5: u32(32), 6: struct.pack("<f", 32), 7: b"\1", 8: text("32"), 10: u64(32)}
    for number, value in (others | {9: array(4, 1, u32(32))}).items():
        cases[f"alignment of type {number}"] = (
            _alignment(number, value),
            f"'general.alignment': has value type {number}",
        )
    return cases


def _arrays() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for item_type, size in _SCALAR_TYPES.items():
        for count in (U64_MAX, U64_MAX // size + (size > 1), 10**6):
            cases[f"{count} items of type {item_type}"] = (
                _one_pair(array(item_type, count, bytes(64)), 9),
                f"'bad.key': an array of {count}",
            )
    for count in _HUGE:
        cases[f"{count} strings"] = (
            _one_pair(array(8, count, text("x") * 3), 9),
            f"'bad.key': an array of {count} strings",
        )
        cases[f"{count} arrays"] = (
            _one_pair(array(9, count, array(0, 0)), 9),
            f"'bad.key': an array of {count} arrays",
        )
        cases[f"array of one array of {count}"] = (_one_pair(array(9, 1, array(0, count)), 9), f"an array of {count}")
        cases[f"a string of {count} in an array"] = (
            _one_pair(array(8, 2, text("fine") + text("x", length=count)), 9),
            "'bad.key': string 1 of 2",
        )
    for number in (13, 100, 2**32 - 1):
        cases[f"items of type {number}"] = (_one_pair(array(number, 1, bytes(8)), 9), f"item type {number}")
        cases[f"no items of type {number}"] = (_one_pair(array(number, 0), 9), f"item type {number}")
    cases["one string too few"] = (_one_pair(array(8, 3, text("abc") + text("defghijkl")), 9), "'bad.key': ")
    cases["string in an array is not UTF-8"] = (
        _one_pair(array(8, 3, text("a") + text(b"\x80") + text("c")), 9),
        "'bad.key': string 1 of 3",
    )
    cases["boolean 3 in an array"] = (_one_pair(array(7, 3, b"\0\1\3"), 9), "'bad.key': a boolean is 3")
    for depth in (9, 500, 80_000):
        nested = array(9, 1) * depth + array(0, 0)
        cases[f"arrays nested {depth} deep"] = (_one_pair(nested, 9), "'bad.key': arrays are nested")
    return cases


def _tensor_lists() -> dict[str, Case]:
    cases: dict[str, Case] = {
        "tensor without a name": (_one_tensor(name=""), "tensor number 0"),
        "tensor name of 65 bytes": (_one_tensor(name="n" * 65), "65 bytes"),
        "tensor name of 10^5 bytes": (_one_tensor(name="n" * 10**5), "100000 bytes"),
        "tensor name is not UTF-8": (_one_tensor(name=b"\xf0\x28"), "UTF-8"),
        "tensor twice": (
            Gguf(infos=[Info("same"), Info("same", offset=32)], data=bytes(64)).encode(),
            "'same': occurs twice",
        ),
        "second tensor missing": (
            Gguf(infos=[Info("first"), text("bad.tensor") + u32(1) + u64(8)], padded=False).encode(),
            "'bad.tensor': type",
        ),
    }
    for num_dims in (0, 5, 1000, 2**31, 2**32 - 1):
        cases[f"{num_dims} dimensions"] = (
            _one_tensor(num_dims=num_dims, dims=(8,) * 5),
            f"'bad.tensor': has {num_dims} dimensions",
        )
    for dims in ((0,), (0, 4), (4, 0), (1, 1, 1, 0), (0, U64_MAX)):
        cases[f"dimensions {dims}"] = (_one_tensor(dims=dims), "'bad.tensor': shape")
    for number in (4, 5, 31, 32, 33, 36, 37, 38, 42, 1000, 2**31, 2**32 - 1):
        cases[f"tensor type {number}"] = (_one_tensor(type_number=number), f"'bad.tensor': type number {number}")
    for number, block in _BLOCK_TYPES.items():
        for columns in (block - 1, block + block // 2):
            cases[f"rows of {columns} in type {number}"] = (
                _one_tensor(type_number=number, dims=(columns, block)),
                f"'bad.tensor': rows of {columns}",
            )
    return cases


def _tensor_data() -> dict[str, Case]:
    whole = good_gguf().encode()
    cases: dict[str, Case] = {}
    for offset in (1, 4, 16, 31, 33, U64_MAX, 2**63 + 8):
        cases[f"offset {offset}"] = (_one_tensor(bytes(96), offset=offset), f"'bad.tensor': its offset {offset}")
    for offset in (32, 64, 2**32, 2**63, 2**64 - 32):
        cases[f"offset {offset} past the end"] = (_one_tensor(offset=offset), "'bad.tensor': shape")
    # Sizes whose product, in elements or in bytes, is small again when it wraps at 64 bits.
    for dims in ((2**62,), (2**62 + 2,), (2**63, 2), (2**32, 2**32), (2**16,) * 4, (U64_MAX, U64_MAX), (9,), (10**12,)):
        cases[f"elements {dims}"] = (_one_tensor(dims=dims), "'bad.tensor': shape")
    for number, block in _BLOCK_TYPES.items():
        cases[f"wrapping type {number}"] = (_one_tensor(type_number=number, dims=(block, 2**60)), "'bad.tensor': shape")
    cases["foreign type past the end"] = (_one_tensor(type_number=16, dims=(256, 99)), "'bad.tensor': shape")
    cases["same place"] = (Gguf(infos=[Info("a"), Info("b")], data=bytes(64)).encode(), "'b': overlaps tensor 'a'")
    cases["half over another"] = (
        Gguf(infos=[Info("a", (16,)), Info("b", offset=32)], data=bytes(64)).encode(),
        "'b': overlaps tensor 'a'",
    )
    cases["inside another"] = (
        Gguf(infos=[Info("a", (64,)), Info("b", offset=96)], data=bytes(256)).encode(),
        "'b': overlaps tensor 'a'",
    )
    cases["gap"] = (Gguf(infos=[Info("a"), Info("b", offset=96)], data=bytes(128)).encode(), "'b': starts at offset 96")
    cases["gap before the first"] = (
        Gguf(infos=[Info("a", offset=32)], data=bytes(64)).encode(),
        "'a': starts at offset 32",
    )
    cases["one byte too many"] = (whole + b"\0", "1 bytes too many")
    cases["a megabyte too many"] = (whole + bytes(10**6), "1000000 bytes too many")
    cases["shards joined"] = (whole + whole, "joined with `cat`")
    cases["data without tensors"] = (Gguf(data=bytes(64)).encode(), "after the last tensor")
    cases["no data"] = (whole[: len(good_gguf().head())], "truncated")
    cases["last byte missing"] = (whole[:-9], "truncated")
    many = [Info(f"t{index}", (1,), 0, 4 * index) for index in range(15_000)]
    crowd = Gguf(pairs=[pair("general.alignment", 4, u32(4))], infos=many, data=bytes(4 * 15_000), alignment=4)
    cases["15000 tensors, one byte short"] = (crowd.encode()[:-1], "'t14999'")
    cases["120000 strings, then nothing"] = (_one_pair(array(8, 120_000, text("") * 119_999), 9)[:-1], "'bad.key'")
    return cases


def safetensors_cases() -> dict[str, Case]:
    """Hostile safetensors files."""
    return {**_safetensors_headers(), **_entries(), **_ranges()}


def _safetensors_headers() -> dict[str, Case]:
    good = safetensors({"a": entry()}, bytes(8))
    raw_cases = {
        "an array": (b"[]", "{"),
        "a string": (b'"x"', "{"),
        "null": (b"null", "{"),
        "blank": (b"   ", "{"),
        "space first": (b' {"a": 1}', "{"),
        "byte order mark": (b"\xef\xbb\xbf{}", "{"),
        "nothing": (b"", "{"),
        "not JSON": (b"{not json}", "not valid JSON"),
        "not UTF-8": (b'{"\xff": 1}', "UTF-8"),
        "half of it": (b'{"a": {"dtype": "F32"', "not valid JSON"),
        "more after it": (b"{} {}", "not valid JSON"),
        "NUL after it": (b"{}\0\0", "not valid JSON"),
        "a raw newline in a string": (b'{"a\n": 1}', "not valid JSON"),
        "arrays 10^5 deep": (b'{"a":' + b"[" * 10**5, "nested too deeply"),
        "closed arrays 10^5 deep": (b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}", "nested too deeply"),
        "objects 10^5 deep": (b'{"a":' * 10**5, "nested too deeply"),
        "a number of 10^5 digits": (b'{"a": ' + b"9" * 10**5 + b"}", "not valid JSON"),
        "tensor twice": (b'{"a": {"dtype": "F32"}, "a": {}}', "'a' occurs twice"),
        "dtype twice": (b'{"a": {"dtype": "F32", "dtype": "F16"}}', "'dtype' occurs twice"),
        "metadata twice": (b'{"__metadata__": {}, "__metadata__": {}}', "'__metadata__' occurs twice"),
        "metadata is a list": (b'{"__metadata__": []}', "__metadata__"),
        "metadata of numbers": (b'{"__metadata__": {"a": 1}}', "__metadata__"),
        "a megabyte of objects": (b'{"a": [' + b"{}," * 330_000 + b"{}]}", "'a'"),
        "a megabyte of keys": (b"{" + b",".join(b'"%x": 0' % key for key in range(80_000)) + b"}", "must have exactly"),
    }
    cases: dict[str, Case] = {f"header: {name}": (safetensors(raw), words) for name, (raw, words) in raw_cases.items()}
    cases["empty"] = (b"", "empty")
    cases["pointer"] = (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull")
    for size in (1, 7):
        cases[f"cut to {size} bytes"] = (good[:size], "too few")
    for size in (8, 9, len(good) - 9):
        cases[f"cut to {size} bytes"] = (good[:size], "truncated")
    for length in (U64_MAX, 2**63, 2**32, 100_000_001):
        cases[f"header of {length} bytes"] = (safetensors({}, length=length), str(length))
    cases["header of 10^8 bytes"] = (safetensors({}, length=10**8), "truncated")
    return cases


def _entries() -> dict[str, Case]:
    wrong: dict[str, tuple[object, str]] = {
        "is a list": ([], "exactly"),
        "is null": (None, "exactly"),
        "is empty": ({}, "exactly"),
        "has more keys": (entry(strides=[1]), "exactly"),
        "offsets of one": (entry(offsets=[8]), "data_offsets"),
        "offsets of three": (entry(offsets=[0, 4, 8]), "data_offsets"),
        "offsets reversed": (entry(offsets=[8, 0]), "data_offsets"),
        "offset negative": (entry(offsets=[-8, 0]), "data_offsets"),
        "offset is a float": (entry(offsets=[0, 8.0]), "data_offsets"),
        "offset is a flag": (entry(offsets=[False, 8]), "data_offsets"),
        "offset is a string": (entry(offsets=["0", "8"]), "data_offsets"),
        "offsets are NaN": (entry(offsets=[float("nan"), float("nan")]), "data_offsets"),
        "offsets are infinite": (entry(offsets=[0, float("inf")]), "data_offsets"),
        "offsets beyond 63 bits": (entry(offsets=[2**63, 2**63 + 8]), "data_offsets"),
        "offsets beyond 64 bits": (entry(offsets=[2**64, 2**64 + 8]), "data_offsets"),
        "unknown type and a huge start": (entry("F8_WEIRD", offsets=[2**63, 8]), "dtype"),  # st-07
        "shape is a number": (entry(shape=2), "shape"),
        "shape is an object": (entry(shape={}), "shape"),
        "size negative": (entry(shape=[-2]), "shape"),
        "two sizes negative": (entry(shape=[-2, -1]), "shape"),
        "size is a float": (entry(shape=[2.0]), "shape"),
        "size is a flag": (entry(shape=[True, 2]), "shape"),
        "size is a list": (entry(shape=[[2]]), "shape"),
        "size beyond 63 bits": (entry(shape=[2**63]), "shape"),
        "nine dimensions": (entry(shape=[1] * 8 + [2]), "shape"),
        "10^5 dimensions": (entry(shape=[1] * 10**5), "shape"),
        "product wraps to 8 bytes": (entry(shape=[2**62 + 2]), "takes"),
        "product wraps to nothing": (entry(shape=[2**32, 2**32], offsets=[0, 0]), "takes"),
        "one byte too few": (entry(offsets=[0, 7]), "takes"),
        "one byte too many": (entry(offsets=[0, 9]), "takes"),
        "odd number of 4-bit elements": (entry("F4", shape=[3], offsets=[0, 1]), "takes"),
    }
    for dtype in ("F8_WEIRD", "f32", "F32 ", "", "Q4_0", None, 0, [], {}):
        wrong[f"dtype {dtype!r}"] = (entry(dtype), "dtype")
    for key in ("dtype", "shape", "data_offsets"):
        wrong[f"without {key}"] = ({name: value for name, value in entry().items() if name != key}, "exactly")
    return {
        f"entry {name}": (
            safetensors({"bad.tensor": value}, bytes(8)),
            f"'bad.tensor': {'the entry' if words == 'exactly' else ''}",
        )
        for name, (value, words) in wrong.items()
    }


def _ranges() -> dict[str, Case]:
    return {
        "ends past the file": (safetensors({"a": entry()}, bytes(7)), "'a' ends at byte 8"),
        "far past the file": (
            safetensors({"a": entry(shape=[2**40], offsets=[0, 2**42])}, bytes(8)),
            "'a' ends at byte",
        ),
        "one byte too many": (safetensors({"a": entry()}, bytes(9)), "1 bytes after the last tensor"),
        "a megabyte too many": (safetensors({"a": entry()}, bytes(8 + 10**6)), "1000000 bytes after"),
        "data without tensors": (safetensors({}, bytes(8)), "8 bytes after"),
        "same place": (safetensors({"a": entry(), "b": entry()}, bytes(8)), "'b' overlaps"),
        "half over another": (safetensors({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)), "'b' overlaps"),
        "inside another": (
            safetensors({"a": entry(shape=[6], offsets=[0, 24]), "b": entry(offsets=[8, 16])}, bytes(24)),
            "'b' overlaps",
        ),
        "gap": (safetensors({"a": entry(), "b": entry(offsets=[16, 24])}, bytes(24)), "'b' leaves a gap"),
        "gap before the first": (safetensors({"a": entry(offsets=[8, 16])}, bytes(16)), "'a' leaves a gap"),
        "overlap in a foreign type": (
            safetensors({"a": entry("I64", [1]), "b": entry("U8", [8], [7, 15])}, bytes(15)),
            "'b' overlaps",
        ),
    }
