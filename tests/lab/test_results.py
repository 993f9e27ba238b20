import json
import math

import pytest

from multimix.lab.storage import Store, write_atomically

RESULT = {"accuracy": 0.1 + 0.2, "list": [1, 2.5]}


def test_a_finished_unit_comes_back_exactly(tmp_path):
    store = Store(tmp_path, "study", {"epochs": 3})
    assert store.get("seed0") is None
    store.put("seed0", RESULT)
    assert Store(tmp_path, "study", {"epochs": 3}).get("seed0") == RESULT


def test_other_settings_are_another_study(tmp_path):
    Store(tmp_path, "study", {"epochs": 3}).put("seed0", RESULT)
    assert Store(tmp_path, "study", {"epochs": 4}).get("seed0") is None


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: text.replace("2.5", "2.6"), lambda text: "[]", lambda text: ""]
)
def test_a_damaged_file_is_named_and_set_aside(tmp_path, damage):
    said = []
    store = Store(tmp_path, "study", {}, note=said.append)
    store.put("seed0", RESULT)
    path = store.folder / "seed0.json"
    path.write_text(damage(path.read_text()))
    assert store.get("seed0") is None
    assert not path.exists()
    assert (store.folder / "seed0.json.corrupt").exists()
    assert len(said) == 1
    assert str(path) in said[0]
    store.put("seed0", RESULT)
    assert store.get("seed0") == RESULT


def test_a_unit_under_another_name_is_not_believed(tmp_path):
    store = Store(tmp_path, "study", {}, note=lambda sentence: None)
    store.put("seed0", RESULT)
    (store.folder / "seed0.json").rename(store.folder / "seed1.json")
    assert store.get("seed1") is None


def test_values_that_json_does_not_know_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        Store(tmp_path, "study", {}).put("seed0", {"loss": math.nan})


def test_writing_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "a.json"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"out must be a folder, '.*file' is a file"):
        Store(tmp_path / "file", "study", {})


def test_every_result_says_what_it_was_obtained_with(tmp_path):
    store = Store(tmp_path, "study", {})
    store.put("seed0", RESULT)
    assert {"multimix", "commit", "torch", "python"} <= set(json.loads((store.folder / "seed0.json").read_text())["environment"])
