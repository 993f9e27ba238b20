"""A training that can be stopped anywhere: epochs of updates, measured, logged, evaluated, written to checkpoints.

Batches, draws and everything else random are functions of (seed, epoch, step), so a checkpoint holds the weights, the optimiser
and a few counters, and a run that resumes from it ends bit-exactly as one that was never stopped.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...core.hooks import MixPoints
from ...core.memory import keep_memory
from ...core.sampling import seeded
from ...methods.base import descriptions, trained_parameters
from ...output import State as MethodState
from ..data import Files, Loader, Split, Splits
from ..data.reading import read_picture
from ..nets import parameter_groups
from ..recipes.settings import Milestones, Phase, Settings
from ..storage import digest
from . import bfloat16
from .checkpoint import Checkpoint, check_shapes, flatten
from .evaluate import evaluate
from .log import Epoch, Step
from .recorder import Recorder, Stop
from .state import Position, State, state_of
from .step import START, Measured, of_all_shares, same_buffers, seed_everything, update

FITTING = 0xF17  # a random stream of its own
IMAGES = 512  # that a network of a method may learn from before the training
FLUSH = 20  # updates between two looks at the numbers on an accelerator, which each look stalls


class Diverged(ValueError):  # noqa: N818  what happened, in one sentence
    """The loss is not a number any more."""


class Clock:
    """Wall and CPU seconds of this process since it was last asked."""

    def __init__(self) -> None:
        self.lap()

    def lap(self) -> dict[str, float]:
        """``seconds`` and ``cpu_seconds`` since the last lap."""
        now = {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}
        passed = {name: now[name] - getattr(self, name, now[name]) for name in now}
        self.__dict__.update(now)
        return passed


class Training:
    """One seed of one choice of settings."""

    def __init__(self, settings: Settings, seed: int, splits: Splits[Split], accelerator: Accelerator) -> None:
        self.settings, self.seed, self.accelerator = settings, seed, accelerator
        self.data = settings.data.entry()
        self.train = _part(splits["train"], settings.data.per_class, settings)
        self.report = _part(splits[settings.data.report], settings.data.report_per_class, settings)
        select = settings.data.select
        self.select = None if select is None else _part(splits[select], settings.data.report_per_class, settings)
        self._check_batches()
        self.at = Position()
        self.method_states: tuple[MethodState, ...] = ()  # one per share of this process; reset every epoch
        seed_everything(START, seed)
        self.network = settings.network.built(len(self.train.classes), self.data.size[0])
        self.samples = digest(self.train.labels.tolist())  # their number and classes, in their order
        self.pixels = digest([part.fingerprint() for part in (self.train, self.report, self.select) if part is not None])
        self.network.to(accelerator.device)
        part = as_stored(self.train, settings.in_epoch(0).augment.short_side)
        self.fitted = fitted_settings(settings, self.network, part, seed, self.total_updates)
        self._prepare()

    def _check_batches(self) -> None:
        """Raise ValueError if an epoch would have no update."""
        phases: tuple[Phase | Settings, ...] = self.settings.phases or (self.settings,)
        for i, phase in enumerate(phases):
            reached = not isinstance(phase, Phase) or phase.epoch < self.settings.epochs
            if reached and phase.batch > len(self.train):
                option = f"--phases.{i}.batch" if self.settings.phases else "--batch"
                most = f"the {len(self.train)} training samples"
                raise ValueError(f"a batch of {phase.batch} is more than {most}; give {option} {len(self.train)} or less")

    def _prepare(self) -> None:
        settings = self.settings
        if settings.channels_last:
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if settings.mixed_precision == "bf16" and self.accelerator.device.type == "cpu" and not bfloat16.is_native():
            bfloat16.convolve_in_float32(self.network)
        hidden = [layer for layer in settings.method.traits.mixes_at if layer is not None]
        model: nn.Module = self.network
        if settings.compile:
            # Hooks must be there before the model is compiled, or they would not be seen.
            self.points = MixPoints(self.network, hidden) if hidden else None
            model = torch.compile(self.network)  # type: ignore[assignment]
        decay = settings.optimizer.weight_decay
        groups = parameter_groups(self.network, decay, norm_decay=settings.optimizer.norm_decay)
        beside = trained_parameters(self.fitted.method)
        groups += [{"params": beside, "weight_decay": decay}] if beside else []
        sgd = torch.optim.SGD(
            groups,
            lr=settings.schedule.at_epoch(0),
            momentum=settings.optimizer.momentum,
            nesterov=settings.optimizer.nesterov and settings.optimizer.momentum > 0,
        )
        self.model, self.optimizer = self.accelerator.prepare(model, sgd)
        if isinstance(self.model, DistributedDataParallel):
            # same_buffers has done it, before the saliency pass: this would be one more broadcast.
            self.model.broadcast_buffers = False

    def loaders(self, epoch: int) -> list[Loader]:
        """One for each share of this process, as the epoch's phase wants them."""
        now = self.settings.in_epoch(epoch)
        split = as_stored(self.train, now.augment.short_side)
        shares = self.accelerator.num_processes * now.accumulate
        if now.batch % shares:
            raise ValueError(f"batch must be a multiple of processes × accumulate, which is {shares}, got {now.batch}")
        first = self.accelerator.process_index * now.accumulate
        return [
            Loader(
                split,
                now.augment.training(self.data),
                batch=now.batch,
                seed=self.seed,
                workers=now.running.workers,
                rank=first + i,
                world=shares,
                repeats=now.repeats,
            )
            for i in range(now.accumulate)
        ]

    def updates_in(self, epoch: int) -> int:
        """Updates of one epoch."""
        return len(self.train) // self.settings.in_epoch(epoch).batch

    @property
    def total_updates(self) -> int:
        """Updates of the whole training."""
        return sum(self.updates_in(epoch) for epoch in range(self.settings.epochs))

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.at.epoch >= self.settings.epochs

    def run(self, recorder: Recorder | None = None, stop: Stop | None = None) -> None:
        """Go on to the end; a KeyboardInterrupt in all processes after the update in which any of them was asked to stop."""
        self.recorder, self.stop = recorder, stop or Stop()
        self.stopping = self.due = False
        if self.accelerator.device.type == "cpu":
            keep_memory()  # a step at K = 5 takes a third less time
        while not self.finished:
            self._epoch()

    def _epoch(self) -> None:
        epoch, settings = self.at.epoch, self.fitted.in_epoch(self.at.epoch)
        clock = Clock()
        pending: list[tuple[Step, Measured]] = []
        every = 1 if self.accelerator.device.type == "cpu" else FLUSH
        count = self.updates_in(epoch)
        for shares in zip(*(loader.epoch(epoch, self.at.step) for loader in self.loaders(epoch)), strict=True):
            rate = settings.schedule.at_epoch(epoch + self.at.step / count)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            for network in (self.network, settings.method.modules):
                same_buffers(network, self.accelerator)
            key = (self.seed, epoch, self.at.step)
            measured = update(self.accelerator, self.model, self.optimizer, settings, shares, key, self.method_states)
            self.method_states, measured = measured.states, measured._replace(states=())
            self.at.step += 1
            self.at.updates += 1
            pending.append((Step(self.at.updates, epoch + 1, rate, math.nan, math.nan, math.nan), measured))
            if len(pending) == every or self.at.step == count:
                self._flush(pending, clock)
                if self.at.step < count:
                    self._between()
                    clock.lap()  # writing is not training
        self._end_of_epoch(rate)

    def _between(self) -> None:
        alone = self.accelerator.num_processes == 1 and self.stop.requested
        stopping = self.stopping or alone
        method_states, due = self.method_states, self.due or stopping
        if due and self.settings.method.traits.history and self.accelerator.num_processes > 1:
            method_states = of_all_shares(self.method_states)
        if self.recorder is not None:
            self.recorder.between(self.at.updates, partial(self.state, method_states), due)
        if stopping:
            raise KeyboardInterrupt

    def _flush(self, pending: list[tuple[Step, Measured]], clock: Clock) -> None:
        """Read the numbers of the last updates, stop if they are none, add them up."""
        # Only the first process has a recorder: whether a checkpoint is due, to which all contribute, it must tell the others.
        flags = (self.stop.requested, self.recorder is not None and self.recorder.due(self.at.updates))
        said = pending[0][1].numbers.new_tensor(flags)
        own = torch.stack([torch.cat([measured.numbers, said]) for _, measured in pending])
        numbers = self.accelerator.reduce(own, "mean").cpu().tolist()
        self.stopping, self.due = (any(row[column] > 0 for row in numbers) for column in (-2, -1))
        world = self.accelerator.num_processes
        for (step, measured), (loss, accuracy, norm, rows, *_) in zip(pending, numbers, strict=True):
            # The scaler of fp16 finds its scale by gradients that overflow, and skips those updates.
            if not math.isfinite(loss) or not (math.isfinite(norm) or self.accelerator.scaler is not None):
                what = f"squared norm of the gradient became {norm}" if math.isfinite(loss) else f"loss became {loss}"
                raise Diverged(divergence(what, step, self.settings))
            images = world * measured.images
            self._add(updates=1, loss=loss, accuracy=accuracy, images=images, rows=world * rows)
            if math.isfinite(norm):
                self._add(squared_grad_norm=norm, measured_norms=1)
            row = step._replace(loss=loss, accuracy=100 * accuracy, squared_grad_norm=norm)
            if self.recorder is not None:
                self.recorder.step(row, images)
        pending.clear()
        self._add(**clock.lap())

    def _add(self, **values: float) -> None:
        for name, value in values.items():
            self.at.sums[name] = self.at.sums.get(name, 0.0) + value

    def _end_of_epoch(self, rate: float) -> None:
        sums, settings, number = self.at.sums, self.settings, self.at.epoch + 1
        errors: dict[str, float | None] = {}
        if number % settings.evaluate_every == 0 or number == settings.epochs:
            errors = self._errors()
        if number == settings.epochs:
            self._check_last(errors, rate)
        self.at.history.append(
            Epoch(
                number=number,
                updates=self.at.updates,
                rate=rate,
                loss=sums["loss"] / sums["updates"],
                accuracy=100 * sums["accuracy"] / sums["updates"],
                squared_grad_norm=sums.get("squared_grad_norm", 0.0) / max(1.0, sums.get("measured_norms", 0.0)),
                images=int(sums["images"]),
                rows=round(sums["rows"]),
                seconds=sums["seconds"],
                cpu_seconds=sums["cpu_seconds"],
                **errors,
            )
        )
        self.at.epoch, self.at.step, self.at.sums, self.method_states = number, 0, {}, ()
        if self.recorder is not None:
            self.recorder.epoch(self.at.history)
        self._between()

    def _errors(self) -> dict[str, float | None]:
        if self.recorder is not None:
            self.recorder.doing("evaluating")
        same_buffers(self.network, self.accelerator)
        augment = self.settings.augment.evaluation(self.data)
        found = evaluate(self.network, self.report, augment, self.settings, self.accelerator)
        errors: dict[str, float | None] = dict(found._asdict())
        if self.select is not None:
            errors["selection_error"] = evaluate(self.network, self.select, augment, self.settings, self.accelerator).error
        return errors

    def _check_last(self, errors: Mapping[str, float | None], rate: float) -> None:
        """Raise Diverged if the network was broken by the last update, after which no loss would tell."""
        broken = [name for name, one in self.network.named_parameters() if one.requires_grad and not one.isfinite().all()]
        if broken or (errors["nll"] is None and errors["error"] == 100):
            what = f"{f'weights {broken[0]}' if broken else 'outputs'} became infinite or NaN"
            step = Step(self.at.updates, self.at.epoch + 1, rate, math.nan, math.nan, math.nan)
            raise Diverged(divergence(what, step, self.settings))

    def state(self, method_states: tuple[MethodState, ...] | None = None) -> Checkpoint:
        """Return everything needed to continue, between two updates.

        Args:
            method_states: Those of all processes; None takes those of this process.
        """
        parts: dict[str, Any] = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        if len(self.fitted.method.modules) > 0:
            parts["method"] = self.fitted.method.modules.state_dict()
        method_states = self.method_states if method_states is None else method_states
        if any(method_states):
            parts["method_states"] = {"shares": tuple(map(dict, method_states))}
        if self.accelerator.scaler is not None:
            parts["scaler"] = self.accelerator.scaler.state_dict()
        data = {"samples": self.samples, "pixels": self.pixels}
        return flatten(parts, {"seed": self.seed, "settings": self.settings.digest(), **data, "at": asdict(self.at)})

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise a ValueError if the state cannot be read or its tensors have other shapes than those of this training."""
        state = state_of(checkpoint)
        if (state.seed, state.settings, state.samples) != (self.seed, self.settings.digest(), self.samples):
            return  # the state of another training, which `resume` rejects
        check_shapes(self.network.state_dict(), state.network)
        check_shapes(self.fitted.method.modules.state_dict(), state.method)
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        for place, kept in state.optimizer["state"].items():
            if kept.get("momentum_buffer") is not None:
                check_shapes({"momentum": weights[place]}, {"momentum": kept["momentum_buffer"]})

    def resume(self, checkpoint: Checkpoint | None) -> None:
        """Go on from a state of this very training, if there is one."""
        if checkpoint is None:
            return
        state = state_of(checkpoint)
        if (state.seed, state.settings) != (self.seed, self.settings.digest()):
            raise ValueError("the checkpoint belongs to another training; give the run a folder of its own")
        if (state.samples, state.pixels) != (self.samples, self.pixels):
            what = "samples" if state.samples != self.samples else "pixels"
            raise ValueError(f"the run was begun with other {what} than are in the data folder now; give it a folder of its own")
        self._load(state)
        self.at = state.at

    def _load(self, state: State) -> None:
        self.network.load_state_dict(state.network)
        self.optimizer.load_state_dict(state.optimizer)
        for weight, kept in self.optimizer.state.items():
            if (momentum := kept.get("momentum_buffer")) is not None:  # in the memory order of its weight, as it was
                kept["momentum_buffer"] = torch.empty_like(weight).copy_(momentum)
        if len(self.fitted.method.modules) > 0:
            self.fitted.method.modules.load_state_dict(state.method)
        if self.accelerator.scaler is not None and state.scaler is not None:
            self.accelerator.scaler.load_state_dict(state.scaler)
        each = len(state.method_states) // self.accelerator.num_processes
        first = self.accelerator.process_index * each
        self.method_states = tuple(map(dict, state.method_states[first : first + each]))


def fitted_settings(settings: Settings, network: nn.Module, train: Split, seed: int, updates: int) -> Settings:
    """``settings`` with a method whose own networks are made: from training samples as the first epoch augments them.

    Everything follows from the seed, in every process alike.
    """
    if not descriptions(settings.method):
        return settings
    now = settings.in_epoch(0)
    loader = Loader(train, now.augment.training(now.data.entry()), batch=min(IMAGES, len(train)), seed=seed)
    images, _ = next(iter(loader.epoch(0)))
    place = next(network.parameters()).device
    method = settings.method.bind(network, images.to(place), updates=updates, generator=seeded(FITTING, seed))
    return replace(settings, method=method)


def as_stored(split: Split, short_side: int | None) -> Split:
    """Files read as if they were stored with this short side, as the protocol's copies are; all else as it is."""
    if not isinstance(split, Files) or short_side is None:
        return split
    return replace(split, reader=partial(read_picture, short_side=short_side))


def _part(split: Split, per_class: int | None, settings: Settings) -> Split:
    return split if per_class is None else split.subset(per_class, settings.data.subset_seed)


def divergence(what: str, step: Step, settings: Settings) -> str:
    """One sentence with ``what`` happened, the place, and changes that often help."""
    if isinstance(settings.schedule, Milestones):
        tips = ["a smaller learning rate (--schedule.rate)", "a warm-up (--schedule.warmup 5)"]
    else:
        tips = ["smaller learning rates (--schedule.points)", "larger batches (--phases.0.batch)"]
    if settings.mixed_precision != "no":
        tips.append("--mixed_precision no")
    return (
        f"the {what} in epoch {step.epoch}, update {step.update} (learning rate {step.rate:g}); the last checkpoint "
        f"before it is kept; try {' or '.join([', '.join(tips[:-1]), tips[-1]])}"
    )
