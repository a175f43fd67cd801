# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Serialized protocol buffers, field by field: JAX has no classes for those of HLO."""

from collections.abc import Iterator

_TRUNCATED = ("expected a serialized HloModuleProto, but got one that ends in a "
              "field")


def read_fields(proto: bytes) -> Iterator[tuple[int, bytes, bytes | int]]:
    """The fields of a message: number, the field as it is written, and its value.
    Raises ValueError for what is no message."""
    position = 0
    while position < len(proto):
        begin = position
        tag, position = _read_number(proto, position)
        value: bytes | int
        match tag & 7:
            case 0:
                value, position = _read_number(proto, position)
            case 1 | 2 | 5 as kind:
                size = {1: 8, 5: 4}.get(kind)
                if size is None:
                    size, position = _read_number(proto, position)
                value = proto[position:position + size]
                position += size
            case kind:
                raise ValueError(f"expected a serialized HloModuleProto, but got a field "
                                 f"of wire type {kind}")
        if position > len(proto):
            raise ValueError(_TRUNCATED)
        yield tag >> 3, proto[begin:position], value


def _read_number(proto: bytes, position: int) -> tuple[int, int]:
    """A number, and the place after it."""
    number = shift = 0
    while position < len(proto):
        byte = proto[position]
        position += 1
        number |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return number, position
    raise ValueError(_TRUNCATED)


def read_numbers(value: bytes | int) -> list[int]:
    """A repeated number, which may be packed."""
    if isinstance(value, int):
        return [value]
    numbers, position = [], 0
    while position < len(value):
        number, position = _read_number(value, position)
        numbers.append(number)
    return numbers


def messages_in(proto: bytes, wanted: int) -> list[bytes]:
    """The values of a field that has messages or strings."""
    return [value for number, _, value in read_fields(proto)
            if number == wanted and isinstance(value, bytes)]


def numbers_in(proto: bytes) -> dict[int, int]:
    """The fields of a message that are numbers."""
    return {number: value for number, _, value in read_fields(proto)
            if isinstance(value, int)}


def write_field(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    return _write_number(number << 3 | 2) + _write_number(len(value)) + value


def _write_number(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes([*written, number])


def replace_field(message: bytes, number: int, value: bytes) -> bytes:
    """The message with another value of a field."""
    return b"".join(write_field(number, value) if own == number else written
                    for own, written, _ in read_fields(message))
