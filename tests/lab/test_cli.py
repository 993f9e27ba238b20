import errno
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import multimix
from multimix.lab import cli
from multimix.lab.recipes import RECIPES
from multimix.lab.recipes.serialise import describe
from multimix.lab.studies.look.pictures import cat, dog, to_image


@pytest.fixture
def files(tmp_path):
    for name, picture in (("cat", cat(64)), ("dog", dog(64))):
        to_image(picture, 64).save(tmp_path / f"{name}.png")
    (tmp_path / "words.txt").write_text("not a picture")
    return tmp_path


def run(folder, *arguments, code="from multimix.lab.cli import main; import sys; sys.exit(main())"):
    """What a shell would see, from a folder of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_look_writes_both_files_and_says_what_to_open(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert cli.main(["look", "cat.png", "dog.png", "--methods", "mixup", "cutmix", "--k", "2", "--size", "32"]) == 0
    said = capsys.readouterr()
    png, html = (os.path.join("multimix-look", name) for name in ("look.png", "look.html"))
    assert said.out.splitlines() == [f"wrote {png}", f"wrote {html}", f"Open {html} in a browser. Move the slider."]
    assert (files / png).stat().st_size > 1000
    page = (files / html).read_text()
    assert [name for name in ("cutout", "mixup", "cutmix", "fmix") if f"<h2>{name}</h2>" in page] == ["mixup", "cutmix"]


def test_every_option_of_look_arrives(files, monkeypatch, capsys):
    seen = {}

    def written(a, b, **options):
        seen.update(options, a=a, b=b)
        return a, b

    monkeypatch.setattr("multimix.lab.studies.look.write_look", written)
    arguments = "look one two --k 3 --methods fmix cutmix --size 99 --seed 7 --out there"
    assert cli.main(arguments.split()) == 0
    del seen["track"], seen["note"]
    assert {name: str(value) for name, value in seen.items()} == {
        "a": "one", "b": "two", "k": "3", "methods": "('fmix', 'cutmix')", "size": "99", "seed": "7", "out": "there",
    }  # fmt: skip


def test_look_brings_two_pictures_along(files, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("multimix.lab.studies.look.write_look", lambda a, b, **options: seen.extend([a, b]) or ("x", "y"))
    assert cli.main(["look", "--size", "48"]) == 0
    assert seen[0].equal(cat(48))
    assert seen[1].equal(dog(48))


@pytest.mark.slow
def test_demo_trains_and_says_what_to_open(files):
    done = run(files, "demo", "--quick", "--seeds", "1", "--out", "shown")
    assert done.returncode == 0, done.stderr
    assert "Open shown/spiral-quick.html" in done.stdout.replace("\\", "/")
    assert "multi-mix" in done.stdout


LOOK = ["look", "cat.png", "dog.png"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["look", "missing.png", "dog.png"], "there is no picture 'missing.png'"),
        (
            ["look", "cat.png", "words.txt"],
            "'words.txt' cannot be read as a picture (not an image in JPEG, PNG",
        ),
        ([*LOOK, "--methods", "cutmx"], "no method 'cutmx' (did you mean 'cutmix'?); there are none, cutout, mixup"),
        ([*LOOK, "--methods", "none"], "none cannot be shown: it mixes nothing"),
        ([*LOOK, "--k", "0"], "k must be an integer of at least 1, got 0"),
        ([*LOOK, "--size", "5000"], "size must lie in 16 … 512 pixels, got 5000"),
        ([*LOOK, "--out", "words.txt"], "out must be a folder, 'words.txt' is a file"),
        (["look", "cat.png"], "a and b must both be image files"),
        ([*LOOK, "--methods", "alignmixup"], "alignmixup cannot be shown: it mixes hidden layers, which have no pixels"),
        (["demo", "--seeds", "0"], "seeds must be at least 1, got 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_input_that_cannot_be_used_is_one_sentence(files, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(files)
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(sentence)
    assert said.err.count("\n") == 1


def test_the_shell_sees_the_sentence_and_the_exit_code(files):
    done = run(files, "look", "missing.png", "dog.png")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "there is no picture 'missing.png'\n")


@pytest.mark.parametrize("arguments", [[*LOOK, "--k", "many"], [*LOOK, "--sead", "1"]], ids=" ".join)
def test_arguments_that_do_not_parse_exit_with_2(files, capsys, monkeypatch, arguments):
    monkeypatch.chdir(files)
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert "--help" in said.err


@pytest.mark.parametrize("missing", ["tyro", "rich", "matplotlib", "PIL"])
def test_a_missing_extra_is_one_sentence(files, missing):
    code = f"import sys; sys.modules['{missing}'] = None; from multimix.lab.cli import main; sys.exit(main())"
    done = run(files, "look", code=code)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "multimix needs its extra [lab] for this: install it with the extra, as the README says\n"


def test_another_missing_module_is_not_blamed_on_the_extra(monkeypatch):
    def broken(*args, **options):
        raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")

    monkeypatch.setattr("multimix.lab.studies.look.write_look", broken)
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        cli.main(["look"])


def test_ctrl_c_stops_without_a_traceback(monkeypatch, capsys):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("multimix.lab.studies.look.write_look", interrupted)
    assert cli.main(["look"]) == 130
    assert capsys.readouterr().err == "stopped\n"
    monkeypatch.setattr("multimix.lab.studies.spiral.demo.run_demo", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "stopped; what is finished is kept, and the same command resumes from there\n"


def test_the_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"multimix {multimix.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_is_one_screen_with_a_line_for_every_command(capsys, arguments):
    assert cli.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 32
    assert max(map(len, lines)) <= 80
    for command in cli.COMMANDS:
        assert sum(line.startswith(f"  {command} ") for line in lines) == 1
    assert [line for line in lines if line.endswith(":")] == ["look and learn:", "train and compare:", "the paper:", "data:"]
    files = {path.stem for path in Path(cli.__file__).parent.joinpath("commands").glob("*.py")} - {"__init__", "options"}
    assert files - {"study_runner", "list_names"} == set(cli.COMMANDS) - {"list"}


def test_an_unknown_command_is_one_sentence(capsys):
    assert cli.main(["lok"]) == 2
    assert capsys.readouterr().err == "no command 'lok' (did you mean 'look'?); multimix --help names all\n"


def test_names_of_other_libraries_lead_to_ours(capsys):
    assert cli.main(["train", "digits", "--scale", "smoke", "--lr", "0.1"]) == 2
    assert capsys.readouterr().err.startswith("no option or field 'lr' (here it is --schedule.rate); ")
    known = describe(RECIPES["digits"].settings("smoke"))
    method = describe(replace(RECIPES["digits"].settings("smoke"), method=multimix.CutMix()))
    assert set(cli.ELSEWHERE.values()) <= {*known, *method}


@pytest.mark.parametrize("command", [["list"], ["list", "paper"]])
def test_lists_fit_into_80_columns_with_every_word_whole(files, command):
    def words(columns):
        environment = os.environ | {"COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
        code = "from multimix.lab.cli import main; import sys; sys.exit(main())"
        done = subprocess.run([sys.executable, "-c", code, *command], cwd=files, env=environment, capture_output=True, text=True)
        return done.stdout.replace("─", "")

    narrow = words(80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert set(narrow.split()) <= {part for word in words(400).split() for part in (word, *re.split("(?<=-)", word))}


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_a_command_has_a_line_an_example_and_every_option_explained(capsys, command):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert not stopped.value.code
    said = capsys.readouterr().out
    assert (cli.command(command).__doc__ or "").splitlines()[0] in " ".join(said.split())
    assert f"  multimix {command}" in said.partition("options")[0]


def test_help_loads_no_picture_library(files):
    code = "import sys; from multimix.lab.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = run(files, "--help", code=code)
    assert "  demo " in done.stdout
    assert not {"matplotlib", "PIL", "multimix.lab.studies.look"} & set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["train", "--help"]], ids=" ".join)
def test_a_terminal_that_cannot_write_greek_letters(tmp_path, arguments, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    monkeypatch.setenv("PYTHONUTF8", "0")
    code = "from multimix.lab.cli import main; import sys; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.decode("cp1252")) > 500


STOPPED = """
import os, signal, sys
from multimix.lab import cli

def work(given):
    os.kill(os.getpid(), signal.SIGTERM)  # while tables are written, say: no training listens

cli._run = work
sys.exit(cli.main(["report"]))
"""


def test_told_to_end_at_any_time_it_says_so_and_exits_with_130():
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "stopped; what is finished is kept, and the same command resumes from there\n"
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["list", "networks"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch, capsys):
    from multimix.lab import storage

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage.os, "fsync", full)
    assert cli.main(["look", "--methods", "mixup", "--size", "32", "--out", str(tmp_path / "look")]) == 2
    assert capsys.readouterr().err == f"cannot write '{tmp_path / 'look' / 'look.png'}': No space left on device\n"
    with pytest.raises(OSError, match="^cannot write '.*table.csv': No space left on device$"):
        storage.write_files(tmp_path / "tables", {"table.csv": b"1"})


HUGE = str(10**12)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["look", "--k", HUGE], "k must be at most 1,000, got 1,000,000,000,000"),
        (["look", "--size", HUGE], "size must lie in 16 … 512 pixels, got 1000000000000"),
        (["demo", "--seeds", HUGE], "seeds must be at most 10,000, got"),
        (["sweep", "points", "--ks", "1", HUGE], "ks must be at most 1,000, got"),
        (["evaluate", "runs", "--set", f"bins={HUGE}"], "bins must be at most 10,000, got"),
        (["evaluate", "runs", "--batch", HUGE], "batch must be at most 1,000,000, got"),
        (["evaluate", "runs", "--workers", HUGE], "workers must be at most 1,000, got"),
        (["evaluate", "a:b", "--set", f"crop={HUGE}"], "crop must be at most 4,096, got"),
        (["evaluate", "runs", "--on", "gradient_norm", "--set", f"ks=1,{HUGE}"], "ks must be at most 1,000, got"),
        (["train", "spiral", "--method", "mixup", "--k", HUGE], "k must be at most 1,000, got"),
        (["train", "cifar100_preact_resnet18", "--epochs", HUGE], "epochs must be at most 1,000,000, got"),
        (["train", "cifar100_preact_resnet18", "--batch", HUGE], "batch must be at most 1,000,000, got"),
        (["train", "cifar100_preact_resnet18", "--running.workers", HUGE], "running.workers must be at most 1,000, got"),
        (["train", "cifar100_preact_resnet18", "--augment.padding", HUGE], "augment.padding must be at most 4,096, got"),
        (["sweep", "cifar100_preact_resnet18", "--jobs", HUGE], "jobs must be at most 1,000, got"),
    ],
)
def test_sizes_are_checked_before_anything_is_made_of_them(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    assert capsys.readouterr().err.startswith(sentence)
