import pytest

from multimix.lab.data import DATASETS, dataset, read
from multimix.lab.data.fetch import SOURCES


def test_a_set_is_read_by_name_with_its_own_options(tmp_path, write):
    write.cifar100(tmp_path)
    assert len(read("cifar100", tmp_path).train.classes) == 100
    assert len(read("cifar100", tmp_path, labels="coarse").test.classes) == 20


def test_unknown_names_and_options_suggest_the_nearest(tmp_path):
    with pytest.raises(
        ValueError, match=r"^no data set 'cifar-100' \(did you mean 'cifar100'\?\); there are cifar10, cifar100, "
    ):
        read("cifar-100", tmp_path)
    with pytest.raises(ValueError, match=r"^cifar10 has no option 'skip_bat' \(did you mean 'skip_bad'\?\); it has skip_bad$"):
        read("cifar10", tmp_path, skip_bat=True)
    with pytest.raises(ValueError, match=r"^digits has no option 'cache'; it has none$"):
        read("digits", tmp_path, cache=tmp_path)


def test_the_table_is_consistent():
    for name, entry in DATASETS.items():
        assert entry is dataset(name)
        assert name == entry.name
        channels = entry.size[0] if entry.layout == "images" else 0  # clouds are not normalised
        assert len(entry.mean) == len(entry.std) == channels
    assert DATASETS["cifar100"].mean[0] * 255 == pytest.approx(129.3)
    assert DATASETS["cifar10"].std[2] * 255 == pytest.approx(66.7)
    # 64,727 files in the archive, six of them background noise.
    assert sum(DATASETS["speech_commands_v1"].counts.values()) == 64_727 - 6


def test_what_can_be_fetched_can_be_read_from_where_it_is_put():
    for name, sources in SOURCES.items():
        assert {source.folder for source in sources} <= set(DATASETS[name].folders), name
