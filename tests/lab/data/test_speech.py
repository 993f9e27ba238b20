import math

import numpy
import pytest
import torch

from multimix.lab.data import BadFile
from multimix.lab.data.speech import clip_length, read_samples, read_spectrogram, read_speech_commands, spectrograms


def expected(clip):
    """One clip, frame by frame."""
    wave = numpy.pad(clip.astype(numpy.float64) / 32768, 160, mode="reflect")
    hamming = numpy.array([0.54 - 0.46 * math.cos(2 * math.pi * i / 320) for i in range(320)])
    found = numpy.zeros((161, 101))
    for frame in range(min(101, len(clip) // 160 + 1)):
        found[:, frame] = numpy.log(1 + numpy.abs(numpy.fft.rfft(hamming * wave[160 * frame : 160 * frame + 320])))
    deviation = found.std()
    return (found - found.mean()) / (deviation if deviation else 1)


def noise(count, seed=0):
    return numpy.random.default_rng(seed).integers(-20000, 20000, count).astype(numpy.int16)


@pytest.mark.parametrize("count", [16000, 15999, 15360, 11700, 16001, 16159, 16160, 20000, 321, 161, 160, 100, 2, 1])
def test_a_spectrogram_is_what_the_definition_says(count):
    found = spectrograms([noise(count)])
    assert found.shape == (1, 1, 161, 101)
    assert found.dtype == torch.float32
    numpy.testing.assert_allclose(found[0, 0].numpy(), expected(noise(count)), atol=2e-4)


def test_many_clips_at_once_come_out_as_each_alone():
    clips = [noise(16000 - 1234 * i, i) for i in range(10)]
    together = spectrograms(clips)
    for clip, row in zip(clips, together, strict=True):
        torch.testing.assert_close(spectrograms([clip])[0], row, rtol=0, atol=1e-5)


def test_mean_and_deviation_of_a_clip_and_silence():
    made = spectrograms([noise(9000), numpy.zeros(16000, dtype=numpy.int16)])
    assert abs(float(made[0].mean())) < 1e-5
    assert abs(float(made[0].std(correction=0)) - 1) < 1e-4
    assert torch.count_nonzero(made[1]) == 0


def test_a_tone_is_found_in_its_bin_but_for_the_reflected_ends():
    tone = (10000 * numpy.sin(2 * math.pi * 1000 * numpy.arange(16000) / 16000)).astype(numpy.int16)
    assert set(spectrograms([tone])[0, 0, :, 1:-1].argmax(0).tolist()) == {1000 // 50}


@pytest.mark.parametrize(("cached", "workers"), [(False, 0), (True, 0), (False, 2)])
def test_clips_are_split_by_the_official_lists(tmp_path, write, cached, workers):
    base = write.speech(tmp_path)
    splits = read_speech_commands(1, tmp_path, cache=tmp_path / "cache" if cached else None, workers=workers)
    assert splits["train"].classes == ("up", "yes")
    assert {part: split.labels.tolist() for part, split in splits.parts.items()} == {
        "train": [0, 0, 1], "validation": [0], "test": [0, 1],
    }  # fmt: skip
    for split, row, name in ((splits["train"], 1, "up/2"), (splits["validation"], 0, "up/1"), (splits["test"], 1, "yes/0")):
        alone = read_spectrogram(str(base / f"{name}_nohash_0.wav"))
        torch.testing.assert_close(split.pixels[row], alone, rtol=0, atol=1e-5)


def test_the_cache_may_be_the_data_folder_itself(tmp_path, write):
    base = write.speech(tmp_path)
    first = read_speech_commands(1, base, cache=base)
    again = read_speech_commands(1, base, cache=base)
    assert again["train"].classes == ("up", "yes")
    assert torch.equal(first["train"].pixels, again["train"].pixels)
    assert len(list(base.glob("*.array"))) == 3


def test_every_bad_clip_is_named_and_can_be_skipped(tmp_path, write):
    base = write.speech(tmp_path)
    path = base / "up/0_nohash_0.wav"
    good = path.read_bytes()
    cases = {
        "must be 16-bit mono at 16000 Hz, it is 16-bit with 1 channels at 8000 Hz": lambda: write.clip(
            path, noise(8000), rate=8000
        ),
        "it is 16-bit with 2 channels at 16000 Hz": lambda: write.clip(path, noise(8000), channels=2),
        "must hold samples, it has none": lambda: write.clip(path, []),
        "must hold the 16,000 samples its header promises, it holds 8,000": lambda: path.write_bytes(good[:16044]),
        "is no WAV file that can be read": lambda: path.write_bytes(b"junk" * 20),
        r"is no WAV file that can be read \(it ends too early\)": lambda: path.write_bytes(good[:20]),
        r"WAV file that can be read \(it ends too early": lambda: path.write_bytes(b""),
    }
    for sentence, spoil in cases.items():
        spoil()
        with pytest.raises(BadFile, match=rf"^[^\n]*up/0_nohash_0.wav [^\n]*{sentence}[^\n]*$"):
            read_speech_commands(1, base)
        splits = read_speech_commands(1, base, skip_bad=True)
        assert splits["train"].labels.tolist() == [0, 1]
        assert len(splits["train"].skipped) == 1
        torch.testing.assert_close(
            splits["train"].pixels[0], read_spectrogram(str(base / "up/2_nohash_0.wav")), rtol=0, atol=1e-5
        )


def test_the_header_alone_tells_the_length_and_what_is_cut_off(tmp_path, write):
    path = tmp_path / "a.wav"
    write.clip(path, noise(1234))
    assert clip_length(str(path)) == len(read_samples(str(path))) == 1234
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadFile, match="must hold the 1,234 samples its header promises, it has 1,000 bytes"):
        clip_length(str(path))
    with pytest.raises(BadFile, match="b.wav is missing"):
        clip_length(str(tmp_path / "b.wav"))


def test_missing_lists_and_empty_folders_are_named(tmp_path, write):
    base = write.speech(tmp_path)
    (base / "testing_list.txt").unlink()
    with pytest.raises(BadFile, match="testing_list.txt is missing"):
        read_speech_commands(1, tmp_path)
    empty = tmp_path / "empty" / "speech_commands_v0.01"
    (empty / "up").mkdir(parents=True)
    for name in ("validation_list.txt", "testing_list.txt"):
        (empty / name).write_text("")
    with pytest.raises(BadFile, match="must hold .wav files in one folder per word, it has none"):
        read_speech_commands(1, empty)
    (empty / "up").rmdir()
    with pytest.raises(BadFile, match="must hold one folder per class, it has none"):
        read_speech_commands(1, empty)


def test_a_damaged_byte_anywhere_is_one_sentence(tmp_path, write):
    """Some sizes make wave seek outside its chunk, which is a RuntimeError."""
    path = tmp_path / "a.wav"
    write.clip(path, noise(400))
    sound = path.read_bytes()
    sentences = []
    for place in range(44):
        for value in (0x00, 0x7F, 0xCE, 0xFF):
            path.write_bytes(sound[:place] + bytes([value]) + sound[place + 1 :])
            sentences += [complaint(read, path) for read in (read_samples, clip_length)]
    assert sum(map(bool, sentences)) > 50
    assert not any("\n" in sentence for sentence in sentences)


def complaint(read, path):
    """What is wrong with a file; empty if nothing is."""
    try:
        read(str(path))
    except BadFile as error:
        return str(error)
    return ""
