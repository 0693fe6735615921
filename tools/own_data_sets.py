"""Data as people have it, made from a seed: a folder of pictures, a table with words and gaps, a text in one line. On none of them does guessing
or a linear model get far: classes of pictures differ by shape alone, and answers of the table by products of columns."""
import pathlib
import struct
import zlib

import numpy

SHAPES = {"cross": 0.5, "disc": 0.3, "square": 0.2}  # the class and its share
TOWNS = ("Oslo", "Rome", "Bern", "Lima", "Cairo", "Quito", "Delhi", "Perth")
KINDS = ("flat", "house", "loft")


def png(pixels):
    """Bytes of a PNG file of pixels u8 [height, width, 3]."""
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b""))


def picture(chance, shape):
    """u8 [height, width, 3]: one shape of any place, size, turn and colour on another colour."""
    height, width = chance.integers(40, 72, 2)
    size, turn = chance.uniform(0.22, 0.36) * min(height, width), chance.uniform(0, numpy.pi)
    top, left = chance.uniform(size, height - size), chance.uniform(size, width - size)
    y, x = numpy.mgrid[0:height, 0:width]
    down, right = y - top, x - left
    u, v = numpy.cos(turn) * right + numpy.sin(turn) * down, numpy.cos(turn) * down - numpy.sin(turn) * right
    if shape == "disc":
        inside = u * u + v * v < size * size
    elif shape == "square":
        inside = numpy.maximum(abs(u), abs(v)) < 0.8 * size
    else:
        inside = (numpy.minimum(abs(u), abs(v)) < 0.3 * size) & (numpy.maximum(abs(u), abs(v)) < size)
    behind = chance.uniform(0, 255, 3)
    before = (behind + chance.uniform(70, 185, 3)) % 255
    noise = chance.normal(0, 14, (height, width, 3))
    return numpy.clip(numpy.where(inside[..., None], before, behind) + noise, 0, 255).astype(numpy.uint8)


def make_pictures(folder, count, seed=1):
    """folder/CLASS/NUMBER.png, every third a JPEG where Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        Image = None
    chance = numpy.random.default_rng(seed)
    number = 0
    for shape, share in SHAPES.items():
        below = pathlib.Path(folder) / shape
        below.mkdir(parents=True)
        for _ in range(round(count * share)):
            pixels = picture(chance, shape)
            if Image is not None and number % 3 == 0:
                Image.fromarray(pixels).save(below / f"{number:05}.jpg", quality=92)
            else:
                (below / f"{number:05}.png").write_bytes(png(pixels))
            number += 1


def make_table(file, rows, seed=1):
    """Columns town, kind, area, age, distance, floor and two answers: price, a number, and demand, one of three words."""
    chance = numpy.random.default_rng(seed)
    town, kind = chance.integers(0, len(TOWNS), rows), chance.integers(0, len(KINDS), rows)
    area, age, distance, floor = chance.gamma(4, 25, rows), chance.uniform(0, 100, rows), chance.exponential(6, rows), chance.integers(0, 9, rows)
    # In every other town what is dear elsewhere is cheap: no column says much by itself.
    turned = numpy.where(town % 2 == 0, 1.0, -1.0)
    worth = turned * ((area - 100) / 50 + numpy.sin(age / 12) * (1 + kind)) + numpy.cos(distance / 2) * numpy.where(floor > 4, 1.5, -1.5)
    price = 250_000 + 60_000 * (worth + chance.normal(0, 0.4, rows))
    demand = numpy.digitize(worth * numpy.where(kind == 1, 1, -1) + chance.normal(0, 0.3, rows), (-1.2, 1.5))
    gap = chance.uniform(0, 1, (rows, 6))
    with open(file, "w") as out:
        out.write("id,town,kind,area,age,distance,floor,price,demand\n")
        for i in range(rows):
            cells = (TOWNS[town[i]], KINDS[kind[i]], f"{area[i]:.1f}", f"{age[i]:.0f}", f"{distance[i]:.2f}", str(floor[i]))
            cells = ["" if gap[i, c] < 0.02 else cell for c, cell in enumerate(cells)]
            out.write(f"{i}," + ",".join(cells) + f",{price[i]:.0f},{('low', 'usual', 'high')[demand[i]]}\n")


def make_text(file, size, seed=1, words=5000):
    """`size` bytes in one line. Each word is followed by one of eight others, so there is something to learn."""
    chance = numpy.random.default_rng(seed)
    language = numpy.random.default_rng(7)  # the same one in every text
    letters = numpy.array(list("abcdefghijklmnopqrstuvwxyz"))
    names = numpy.array(sorted({"".join(language.choice(letters, language.integers(2, 9))) for _ in range(words)}))
    followers = language.integers(0, len(names), (len(names), 8))
    written, streams = 0, 512  # chains side by side, of 64 words each, for speed
    at = chance.integers(0, len(names), streams)
    with open(file, "w") as out:
        while written < size:
            chain = []
            for _ in range(64):
                at = followers[at, chance.integers(0, 8, streams)]
                chain.append(at)
            text = " ".join(names[numpy.array(chain).T.reshape(-1)]) + " "
            out.write(text[:size - written])
            written += len(text)
