"""Writes the small sound files that the fuzzer starts with: FOLDER/NAME."""
import pathlib
import struct
import sys

GUID = b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"


def wav(code, channels, bits, data, extension=b"", claimed=None, rate=8000, riff=b"RIFF", before=b""):
    order = ">" if riff == b"RIFX" else "<"
    frame = channels * bits // 8
    form = struct.pack(order + "HHIIHH", code, channels, rate, rate * frame, frame, bits) + extension
    size = len(data) if claimed is None else claimed
    chunks = b"WAVE" + before + b"fmt " + struct.pack(order + "I", len(form)) + form + b"data" + struct.pack(order + "I", size) + data
    return riff + struct.pack(order + "I", 0xFFFFFFFF if riff == b"RF64" else len(chunks)) + chunks


def ramp(kind, count, scale, order="<"):
    return struct.pack(f"{order}{count}{kind}", *[i * scale for i in range(count)])


def ramp24(count):
    return b"".join(struct.pack("<i", i << 12)[:3] for i in range(count))


def extended(code):
    """What WAVE_EXTENSIBLE appends: valid bits, speakers, and the format as a GUID."""
    return struct.pack("<HHI", 22, 16, 3) + struct.pack("<H", code) + GUID


def checked(data, polynomial, bits):
    """With the CRC of FLAC behind it."""
    value = 0
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (bits - 1) else 0)
            value &= (1 << bits) - 1
    return data + value.to_bytes(bits // 8, "big")


def flac_frame(number, value):
    """4096 samples of two channels that are all the same."""
    header = checked(b"\xff\xf8\xc0\x10" + bytes([number]), 0x07, 8)
    return checked(header + 2 * struct.pack(">bh", 0, value), 0x8005, 16)


FILES = {
    "pcm8": wav(1, 1, 8, bytes(range(100, 180))),
    "pcm16": wav(1, 1, 16, ramp("h", 80, 300)),
    "pcm16-stereo": wav(1, 2, 16, ramp("h", 160, 150)),
    "pcm16-big-endian": wav(1, 1, 16, ramp("h", 80, 300, ">"), riff=b"RIFX"),
    "pcm24": wav(1, 1, 24, ramp24(80)),
    "pcm32": wav(1, 1, 32, ramp("i", 80, 1 << 22)),
    "float32": wav(3, 1, 32, ramp("f", 80, 0.01)),
    "float64": wav(3, 1, 64, ramp("d", 40, 0.02)),
    "float-nan": wav(3, 1, 32, ramp("f", 8, 0.01) + struct.pack("<f", float("nan"))),
    "mu-law": wav(7, 1, 8, bytes(range(60, 140)), struct.pack("<H", 0)),
    "adpcm": wav(0x11, 1, 4, bytes(64), struct.pack("<HH", 2, 121)),
    "extensible": wav(0xFFFE, 2, 16, ramp("h", 80, 300), extended(1)),
    "extensible-float": wav(0xFFFE, 1, 32, ramp("f", 40, 0.01), extended(3)),
    "other-chunks": wav(1, 1, 16, ramp("h", 40, 300), before=b"LIST" + struct.pack("<I", 5) + b"INFOx\0"),
    "rf64": wav(1, 1, 16, ramp("h", 40, 300), riff=b"RF64", claimed=0xFFFFFFFF,
                before=b"ds64" + struct.pack("<IQQQI", 28, 144, 80, 40, 0)),
    "claims-more": wav(1, 1, 16, ramp("h", 40, 300), claimed=4000),
    "claims-2-gib": wav(1, 1, 16, ramp("h", 40, 300), claimed=0x7FFFFFFE),
    "claims-less": wav(1, 1, 16, ramp("h", 40, 300), claimed=20),
    "piped": wav(1, 1, 16, ramp("h", 40, 300), claimed=0xFFFFFFFF),
    "no-channels": wav(1, 0, 16, ramp("h", 8, 300)),
    "no-bits": wav(1, 1, 0, ramp("h", 8, 300)),
    "fast": wav(1, 1, 16, ramp("h", 8, 300), rate=4_000_000_000 // 8),
}

flac = (pathlib.Path(__file__).parent.parent / "goldens/sound/ramp.flac").read_bytes()
LENGTH = slice(21, 26)  # the last 36 of these bits are the number of frames
FRAMES = 86  # where the first frame begins
unknown = flac[:LENGTH.start] + bytes([flac[21] & 0xF0, 0, 0, 0, 0]) + flac[LENGTH.stop:]
frames = unknown[:FRAMES] + b"".join(flac_frame(number, 1000 * number) for number in range(3))
FILES |= {
    "flac": flac,
    "flac-cut": flac[:-20],
    "flac-claims-more": flac[:LENGTH.start] + bytes([flac[21] | 0x0F]) + flac[22:],
    "flac-unknown-length": unknown,
    "flac-unknown-length-frames": frames,
    "flac-unknown-length-cut": frames[:-5],
}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, data in FILES.items():
    (folder / name).write_bytes(data)
