"""Estimates of the tokens of images, files and audio, high enough to be reserved."""

from __future__ import annotations

import base64
import binascii
import io
import re
import wave
import zlib
from collections.abc import Iterable

from podwright.data.data_urls import PDF, parse_data_url
from podwright.messages.messages import AudioPart, ContentPart

IMAGE_TOKENS = 1_600
"""Assumed for an image, whose tokens depend on its size and on the provider; most providers scale larger ones down."""
PAGE_TOKENS = 3_000 + IMAGE_TOKENS
"""Assumed for a page of a PDF, which is an image, and whose text has, as Anthropic says, 1 500 to 3 000 tokens."""

_ASSUMED_PAGES = 4
"""Pages of a document that is at a URL, or whose pages cannot be seen; the result of a tool may have as many."""
_AUDIO_TOKENS = 32
"""Tokens of a second of audio at Google, which counts more than OpenAI."""
_SLOWEST_WAV = 8_000
"""Bytes of a second of WAV of the lowest quality, that of telephones."""
_SLOWEST_MP3 = 4_000
"""Bytes of a second of MP3 of a low quality, 32 kbit/s."""
_HEAD = 4_096
"""Characters of base64 in which the head of audio is looked for; a multiple of 4."""
_PAGE = re.compile(rb"/Type\s{0,9}/Page(?![A-Za-z])")
_OBJECTS = re.compile(rb"/Type\s{0,9}/ObjStm[^>]{0,400}>>\s{0,9}stream\r?\n")
"""The head of a stream of compressed objects, which may be pages."""
_MOST_INFLATED = 8 * 1024 * 1024
"""Bytes of compressed objects that are looked at."""
_CHUNK = 16 * 1024
"""Bytes that are given to zlib at once, which copies what it does not read."""


def estimate_media(part: ContentPart) -> int:
    """Return an estimate of the tokens of an image, a file or audio; 0 for a text."""
    match part["type"]:
        case "image_url":
            return IMAGE_TOKENS
        case "file":
            return _file_tokens(part["file"]["file_data"])
        case "input_audio":
            return audio_tokens([part])
        case _:
            return 0


def audio_tokens(parts: Iterable[ContentPart]) -> int:
    """Return an estimate of the tokens of the audio among parts."""
    seconds = 0.0
    for part in parts:
        if part["type"] == "input_audio":
            seconds += _seconds_of(part)
    return -int(-seconds * _AUDIO_TOKENS // 1)


def _file_tokens(url: str) -> int:
    parsed = parse_data_url(url)
    if parsed is None:
        return _ASSUMED_PAGES * PAGE_TOKENS
    if parsed.media_type == PDF:
        pages = _pages_of(_decoded(parsed.data))
        return (pages or _ASSUMED_PAGES) * PAGE_TOKENS
    # as a text: a quarter of its bytes, which base64 makes longer by a third
    return len(parsed.data) * 3 // 16 + 1


def _pages_of(pdf: bytes) -> int:
    """The pages of a PDF; 0 if none can be seen, because it is encrypted or broken."""
    pages = len(_PAGE.findall(pdf))
    left = _MOST_INFLATED
    for match in _OBJECTS.finditer(pdf):
        if left <= 0:
            break
        objects = _inflated(pdf, match.end(), left)
        left -= max(1_000, len(objects))
        pages += len(_PAGE.findall(objects))
    return pages


def _inflated(data: bytes, start: int, most: int) -> bytes:
    stream = zlib.decompressobj()
    inflated = bytearray()
    try:
        for at in range(start, len(data), _CHUNK):
            chunk = data[at : at + _CHUNK]
            inflated += stream.decompress(chunk, most - len(inflated))
            if stream.eof or len(inflated) >= most:
                break
    except zlib.error:
        pass
    return bytes(inflated)


def _seconds_of(part: AudioPart) -> float:
    audio = part["input_audio"]
    size = len(audio["data"]) * 3 / 4
    if audio["format"] == "mp3":
        return size / _SLOWEST_MP3
    head = io.BytesIO(_decoded(audio["data"][:_HEAD]))
    rate = 0
    try:
        with wave.open(head) as sound:
            rate = (
                sound.getframerate()
                * sound.getnchannels()
                * sound.getsampwidth()
            )
    # RuntimeError: a chunk says that it is longer than the file
    except (wave.Error, EOFError, RuntimeError):
        pass
    return size / max(rate, _SLOWEST_WAV)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return b""
