"""Pictures and sounds of every kind that people have, each against a plain computation of what should come out."""

import numpy
import pytest
import torch
from PIL import Image
from scipy.io import wavfile

from multimix.lab.data.own_files import in_colour, read_sound, read_square
from multimix.lab.data.reading import BadFile
from multimix.lab.data.speech import read_spectrogram


def array(*shape, seed=0):
    return numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8)


def saved(path, picture, **options):
    picture.save(path, **options)
    return str(path)


def seen(path, side):
    return read_square(path, side).permute(1, 2, 0).numpy()


def test_a_square_of_the_size_asked_for_stays_as_it_is(tmp_path):
    pixels = array(24, 24, 3)
    assert numpy.array_equal(seen(saved(tmp_path / "a.png", Image.fromarray(pixels)), 24), pixels)


def test_the_middle_is_taken(tmp_path):
    pixels = array(24, 40, 3)
    assert numpy.array_equal(seen(saved(tmp_path / "a.png", Image.fromarray(pixels)), 24), pixels[:, 8:32])
    assert numpy.array_equal(
        seen(saved(tmp_path / "b.png", Image.fromarray(pixels.swapaxes(0, 1))), 24), pixels[:, 8:32].swapaxes(0, 1)
    )


@pytest.mark.parametrize(("orientation", "turned"), [(1, 0), (6, 3), (3, 2), (8, 1)])
def test_exif_turns(tmp_path, orientation, turned):
    pixels, exif = array(24, 24, 3), Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "a.png", Image.fromarray(pixels), exif=exif)
    assert numpy.array_equal(seen(path, 24), numpy.rot90(pixels, turned))


def test_grey_palette_and_transparency(tmp_path):
    grey = array(8, 8)
    assert numpy.array_equal(seen(saved(tmp_path / "grey.png", Image.fromarray(grey)), 8), numpy.stack([grey] * 3, 2))
    colours = Image.fromarray(array(8, 8, 3)).quantize(16)
    assert numpy.array_equal(seen(saved(tmp_path / "p.png", colours), 8), numpy.array(colours.convert("RGB")))
    pixels, alpha = array(8, 8, 3), array(8, 8, seed=1)
    mixed = Image.fromarray(numpy.dstack([pixels, alpha]))
    share = alpha[..., None] / 255
    expected = share * pixels + (1 - share) * 255
    assert numpy.abs(seen(saved(tmp_path / "rgba.png", mixed), 8) - expected).max() <= 1


def test_sixteen_bits_and_floats_become_eight():
    values = numpy.array([[0, 257, 65535]], dtype=numpy.uint16)
    assert numpy.array(in_colour(Image.fromarray(values)))[0, :, 0].tolist() == [0, 1, 255]
    assert numpy.array(in_colour(Image.fromarray(numpy.array([[0.0, 0.5, 1.0]], dtype=numpy.float32))))[0, :, 0].tolist() == [
        0,
        128,
        255,
    ]
    assert numpy.array(in_colour(Image.fromarray(numpy.array([[0, 100, 255]], dtype=numpy.int32))))[0, :, 0].tolist() == [
        0,
        100,
        255,
    ]


def test_an_animation_is_its_first_frame_and_a_name_may_lie(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    path = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert seen(path, 8)[0, 0].tolist() == [255, 0, 0]
    (tmp_path / "b.jpg").write_bytes((tmp_path / "a.gif").read_bytes())
    assert seen(str(tmp_path / "b.jpg"), 8)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (3, 2)])
def test_tiny_and_thin_pictures(tmp_path, shape):
    path = saved(tmp_path / "a.png", Image.fromarray(array(*shape, 3)))
    assert read_square(path, 32).shape == (3, 32, 32)


def test_too_large_a_picture_is_a_sentence(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.jpg", Image.new("RGB", (300, 200), "green"))
    assert read_square(path, 16).shape == (3, 16, 16)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40_000)
    with pytest.raises(BadFile, match=r"a\.jpg is an image that cannot be decoded: Image size"):
        read_square(path, 16)


def test_cmyk(tmp_path):
    picture = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    red, green, blue = seen(saved(tmp_path / "a.jpg", picture), 8)[4, 4].tolist()
    assert red > 200
    assert max(green, blue) < 60


def test_a_clip_of_speech_commands_is_seen_as_there(tmp_path):
    samples = numpy.random.default_rng(0).integers(-9000, 9000, 16000, dtype=numpy.int16)
    wavfile.write(tmp_path / "a.wav", 16000, samples)
    difference = read_sound(str(tmp_path / "a.wav")) - read_spectrogram(str(tmp_path / "a.wav"))
    assert float(difference.abs().max()) < 0.01  # samples are divided by 32768 and multiplied by 32767


@pytest.mark.parametrize(
    ("rate", "kind"), [(44100, numpy.int16), (8000, numpy.uint8), (22050, numpy.int32), (48000, numpy.float32)]
)
def test_a_tone_is_where_it_should_be_whatever_the_rate_and_type(tmp_path, rate, kind):
    wave = 0.5 * numpy.sin(2 * numpy.pi * 1000 * numpy.arange(rate) / rate)
    top = {numpy.uint8: 127, numpy.int16: 32767, numpy.int32: 2**31 - 1, numpy.float32: 1}[kind]
    stereo = numpy.stack([wave, wave], 1) * top + (128 if kind is numpy.uint8 else 0)
    wavfile.write(tmp_path / "a.wav", rate, stereo.astype(kind))
    found = read_sound(str(tmp_path / "a.wav"))
    assert found.shape == (1, 161, 101)
    assert int(found[0].mean(1).argmax()) == 20  # 50 Hz a bin


def test_of_a_long_clip_the_middle_second(tmp_path):
    tones = [numpy.sin(2 * numpy.pi * hertz * numpy.arange(16000) / 16000) for hertz in (500, 2000, 4000)]
    wavfile.write(tmp_path / "a.wav", 16000, (numpy.concatenate(tones) * 9000).astype(numpy.int16))
    assert int(read_sound(str(tmp_path / "a.wav"))[0].mean(1).argmax()) == 40


@pytest.mark.parametrize("count", [1, 2, 50])
def test_very_short_clips(tmp_path, count):
    wavfile.write(tmp_path / "a.wav", 16000, numpy.full(count, 1000, dtype=numpy.int16))
    assert torch.isfinite(read_sound(str(tmp_path / "a.wav"))).all()


@pytest.mark.parametrize("content", [b"", b"RIFF", b"RIFF\x00\x00\x00\x00WAVE", b"nonsense" * 10])
def test_what_is_no_sound(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(BadFile, match=r"a\.wav is no WAV file that can be read \(.+\)$"):
        read_sound(str(tmp_path / "a.wav"))
