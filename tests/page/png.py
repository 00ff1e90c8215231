"""Reads screenshots of the browser, and writes them with fewer colours."""
import collections
import struct
import zlib

# The distance between two values of a colour. The lower bits are invisible.
STEP = 12
# The number of colours that are not rounded.
COMMON = 48


def chunks(data):
    at = 8
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        yield kind, data[at + 8:at + 8 + length]
        at += 12 + length


def read(data):
    """Returns width and height, and the lines of pixels with 3 bytes each."""
    parts = list(chunks(data))
    header = next(body for kind, body in parts if kind == b"IHDR")
    width, height, depth, colours = struct.unpack(">IIBB", header[:10])
    assert depth == 8 and colours in (2, 6), "another kind of picture"
    pixel = 3 if colours == 2 else 4
    raw = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    rows, before, length = [], bytearray(width * pixel), width * pixel
    for start in range(0, len(raw), length + 1):
        row = plain(raw[start], bytearray(raw[start + 1:start + 1 + length]), before, pixel)
        rows.append(bytes(row) if pixel == 3 else b"".join(row[at:at + 3] for at in range(0, length, 4)))
        before = row
    return (width, height), rows


def plain(how, row, above, pixel):
    """Decodes a filtered line: the filter makes lines easier to compress."""
    for at in range(len(row) if how else 0):
        left = row[at - pixel] if at >= pixel else 0
        up = above[at]
        if how == 1:
            guess = left
        elif how == 2:
            guess = up
        elif how == 3:
            guess = (left + up) // 2
        else:
            corner = above[at - pixel] if at >= pixel else 0
            near = left + up - corner
            guess = min((left, up, corner), key=lambda known: abs(near - known))
        row[at] = (row[at] + guess) & 255
    return row


def small(data):
    """Returns the picture with at most 256 colours. Colours of areas stay; those at the edges of letters are rounded."""
    (width, height), rows = read(data)
    rounded = bytes(min(255, (value + STEP // 2) // STEP * STEP) for value in range(256))
    lines = [[row[at:at + 3] for at in range(0, len(row), 3)] for row in rows]
    counts = collections.Counter(colour for line in lines for colour in line)
    meant = {colour: colour.translate(rounded) for colour in counts}
    meant |= {colour: colour for colour, _ in counts.most_common(COMMON)}
    palette = {colour: number for number, colour in enumerate(dict.fromkeys(meant.values()))}
    assert len(palette) <= 256, f"{len(palette)} colours"
    lines = [b"\0" + bytes(palette[meant[colour]] for colour in line) for line in lines]
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = zlib.compress(b"".join(lines), 9)
    parts = [(b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", body), (b"IEND", b"")]
    made = [struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)
