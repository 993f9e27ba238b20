"""The adapter for the Trainer: its page runs with every kind of method, equals a plain loop, and resumes exactly."""

import copy

import pytest
import torch
from torch import nn

import multimix as mm
from adapter_pages import CASES, plain_loop, run_page, same_weights
from multimix.compat.transformers import Mixing
from multimix.methods.samix.block import NewBlock
from peers import peer

peer("torchvision")
transformers = peer("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found"),
]


class MixingTrainer(Mixing, transformers.Trainer):
    pass


class Net(nn.Module):
    """A plain module of the Trainer's kind; ``scale`` is a second input with a row for every sample."""

    main_input_name = "x"

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6 * 56, 4)
        self.rows, self.config = [], transformers.PretrainedConfig()

    def forward(self, x, scale=None, labels=None):
        z = nn.functional.dropout(self.first(x).relu(), 0.2, self.training).flatten(1)
        logits = self.last(z if scale is None else z * scale)
        self.rows.append(len(logits))
        return {"logits": logits} | ({} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)})


def data(scaled=False, labels="labels", count=12):
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(count, 3, 8, 7, generator=generator), torch.randint(4, (count,), generator=generator)
    return [
        {"x": a, labels: b} | ({"scale": torch.full((1,), 1.0 + i)} if scaled else {})
        for i, (a, b) in enumerate(zip(x, y, strict=True))
    ]


def made(kind):
    torch.manual_seed(3)
    model = Net()
    images = torch.stack([row["x"] for row in data()])
    method = {
        "history": lambda: mm.RecursiveMix(k=2),
        "network": lambda: mm.SAMix(k=2, block=NewBlock("first", momentum=0.5)).bind(model, images, updates=6),
        "clean": lambda: mm.PuzzleMix(k=2, blocks=((4, 7),), clean_weight=0.5),
        "input": lambda: mm.CutMix(k=3),
    }[kind]()
    return model, method


def trainer(folder, model, method, *, rows=None, save="no", options=None, **more):
    arguments = transformers.TrainingArguments(
        str(folder),
        **{
            "num_train_epochs": 2,
            "per_device_train_batch_size": 4,
            "learning_rate": 0.1,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "save_strategy": save,
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            "logging_strategy": "no",
            **more,
        },
    )
    return MixingTrainer(model, arguments, train_dataset=data() if rows is None else rows, method=method, **(options or {}))


def in_order(trainer):
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(trainer.train_dataset)
    return trainer


def test_the_page_runs_with_every_kind_of_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, k in CASES:
        found = run_page("Hugging Face Trainer", name, k, "resnet.encoder.stages.0")
        assert all(weight.isfinite().all() for weight in found["model"].parameters()), name
        model = found["model"].eval()
        loss = nn.functional.cross_entropy(model(found["images"]).logits, found["labels"])
        assert found["error"] == pytest.approx(float(loss.detach()), rel=1e-4), name


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", ["input", "history", "network", "clean"])
def test_it_is_the_plain_loop(kind, parts, tmp_path):
    """With gradient accumulation, too: the loss is neither multiplied by the number of batches nor by K."""
    model, method = made(kind)
    copied = copy.deepcopy((model, method))
    seed = []
    watched = in_order(trainer(tmp_path, model, method, gradient_accumulation_steps=parts))
    compute = watched.compute_loss

    def remember(*args, **options):
        seed.append(torch.get_rng_state())
        return compute(*args, **options)

    watched.compute_loss = remember
    watched.train()
    model_too, method_too = copied
    batches = [(torch.stack([row["x"] for row in part]), torch.stack([row["labels"] for row in part])) for part in thirds()]
    states = iter(seed)
    optimizer = torch.optim.SGD([*model_too.parameters(), *method_too.modules.parameters()], lr=0.1)
    for _ in range(2):
        plain_loop(model_too, method_too, [batches], optimizer, parts=parts, before=lambda: torch.set_rng_state(next(states)))
    close(model, model_too)
    close(method.modules, method_too.modules)


def thirds():
    rows = data()
    return [rows[i : i + 4] for i in (0, 4, 8)]


def close(a, b):
    for left, right in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("kind", ["input", "history", "network"])
def test_a_run_that_was_stopped_goes_on_exactly(kind, tmp_path):
    """In the middle of an epoch, after 2 of 3 steps, and at its end."""
    more = {"num_train_epochs": 3, "save": "steps", "save_steps": 1}
    whole = made(kind)
    trainer(tmp_path, *whole, **more).train()
    for step in (2, 3):
        torch.manual_seed(99)
        model, method = made(kind)
        with torch.no_grad():
            for weight in [*model.parameters(), *method.modules.parameters()]:
                weight.zero_()
        trainer(tmp_path / "on", model, method, **more).train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert same_weights(model, whole[0]), step
        assert same_weights(method.modules, whole[1].modules), step


def test_further_inputs_are_repeated_and_evaluation_is_left_alone(tmp_path):
    model, _ = made("input")
    rows = data(scaled=True)
    found = trainer(tmp_path, model, mm.CutMix(k=5), rows=rows, options={"eval_dataset": rows}, num_train_epochs=1)
    found.train()
    assert model.rows == [20, 20, 20]
    model.rows.clear()
    found.evaluate()
    assert model.rows == [8, 4]


def test_labels_are_smoothed_as_the_arguments_say(tmp_path):
    model, _ = made("input")
    one = data(count=4)
    seen = []

    def loss(logits, target):
        seen.append(target)
        return mm.losses.soft_cross_entropy(logits, target)

    found = trainer(tmp_path, model, mm.NoMix(), rows=one, options={"loss": loss}, label_smoothing_factor=0.2, num_train_epochs=1)
    found.train()
    torch.testing.assert_close(seen[0].max(1).values, torch.full((4,), 0.85))


def test_misuse_is_one_sentence(tmp_path):
    model, _ = made("input")
    with pytest.raises(ValueError, match="key 'labels'"):
        trainer(tmp_path, model, mm.CutMix(), rows=data(labels="y"), remove_unused_columns=False).train()
    with pytest.raises(ValueError, match="'pictures'.*input_name="):
        trainer(tmp_path, model, mm.CutMix(), options={"input_name": "pictures"}).train()
    with pytest.raises(ValueError, match="compute_loss_func="):
        trainer(tmp_path, model, mm.CutMix(), options={"compute_loss_func": lambda *_: 0})
    model, method = made("network")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="no optimi[sz]er trains the network of SAMix"):
        trainer(tmp_path, model, method, options={"optimizers": (optimizer, None)}).train()


def test_a_training_that_is_repeated_follows_once_per_step(tmp_path):
    model, method = made("network")
    found = trainer(tmp_path, model, method, save="epoch", num_train_epochs=1)
    found.train()
    found.train()
    assert int(method.block.encoder.updates) == 6
    found.args.num_train_epochs = 2
    found.train(resume_from_checkpoint=True)  # from the end of the second
    assert int(method.block.encoder.updates) == 9


def test_statistics_are_recomputed_when_the_training_ends(tmp_path):
    torch.manual_seed(0)
    model = Net()
    model.first = nn.Sequential(nn.BatchNorm2d(3), model.first)
    run = in_order(trainer(tmp_path, model, mm.InputMixup(k=2), options={"recompute_batchnorm": True}, num_train_epochs=1))
    run.train()
    twin = copy.deepcopy(model)
    mm.recompute_batchnorm(twin, torch.stack([row["x"] for row in data()]).split(4))
    assert torch.equal(model.first[0].running_var, twin.first[0].running_var)
