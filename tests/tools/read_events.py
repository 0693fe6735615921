#!/usr/bin/env python3
"""Reads a TensorBoard event file, independently of the program that wrote it, and prints one JSON object per event.

Nothing but the standard library: the frames, CRC-32C and the protobuf wire format are decoded here from their descriptions. Anything
out of order (a sum that does not match, a field that the messages do not have, bytes left over) ends with status 1 and a reason.

    tests/tools/read_events.py FILE
"""
import json
import struct
import sys


def crc32c(data):
    """Bit by bit, polynomial 0x1EDC6F41 reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(data):
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            raise ValueError(f"torn frame at byte {at}")
        length, length_sum = struct.unpack_from("<QI", data, at)
        if masked(data[at : at + 8]) != length_sum:
            raise ValueError(f"the sum of the length at byte {at} does not match")
        at += 12
        if len(data) - at < length + 4:
            raise ValueError(f"torn frame at byte {at}")
        content = data[at : at + length]
        (content_sum,) = struct.unpack_from("<I", data, at + length)
        if masked(content) != content_sum:
            raise ValueError(f"the sum of the content at byte {at} does not match")
        at += length + 4
        yield content


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Yields (number, wire type, value) of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
            if len(value) != length:
                raise ValueError("a field is longer than its message")
        elif wire == 5:
            value, at = data[at : at + 4], at + 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, wire, value


def scalar(data):
    tag = number = None
    for field, wire, value in fields(data):
        if (field, wire) == (1, 2):
            tag = value.decode("utf-8")
        elif (field, wire) == (2, 5):
            (number,) = struct.unpack("<f", value)
        else:
            raise ValueError(f"Summary.Value has no field {field} of wire type {wire}")
    return tag, number


def event(data):
    out = {"values": {}}
    for field, wire, value in fields(data):
        if (field, wire) == (1, 1):
            (out["time"],) = struct.unpack("<d", value)
        elif (field, wire) == (2, 0):
            out["step"] = value
        elif (field, wire) == (3, 2):
            out["version"] = value.decode("utf-8")
        elif (field, wire) == (5, 2):
            for inner, inner_wire, part in fields(value):
                if (inner, inner_wire) != (1, 2):
                    raise ValueError(f"Summary has no field {inner} of wire type {inner_wire}")
                tag, number = scalar(part)
                out["values"][tag] = number
        else:
            raise ValueError(f"Event has no field {field} of wire type {wire}")
    return out


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    try:
        for content in frames(data):
            print(json.dumps(event(content)))
    except (ValueError, IndexError, struct.error) as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
