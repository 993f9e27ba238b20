"""What every mixing method shares: K, the probability of mixing, the pair and the path."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..checks import check_batch, check_finite, check_share, is_whole
from ..logits import Output
from ..plan import PairPlan, Plan, UnmixedPlan
from ..saliency import clean_pass, input_saliency
from ..sampling import Sampler, check_path_options, checked_partner, checked_path, random_partner, resolved, sample_path

WHERE_FROM = {
    "saliency": ", such as multimix.input_saliency(model, x, y)",
    "noise": ", which mixed_logits, mixed_loss and Mix(…, model=) make with the model",
}
CleanScale = Literal["auto", "plain", "per_class", "loss"]


class Prepared(NamedTuple):
    """What a model told for one batch: keywords for ``plan``, and with their graphs what losses beside the mixed one are made of.

    ``clean`` is the mean cross-entropy of the clean batch, ``logits`` what the model says about it, for ``clean_scale`` "loss";
    ``own`` is a loss of the method's own network.
    """

    given: dict[str, Tensor]
    clean: Tensor | None = None
    logits: Tensor | None = None
    own: Tensor | None = None


class Method(ABC):
    """A way of mixing. Frozen: everything drawn goes into the plan, nothing is stored here."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[Literal["images", "points"]] = "images"
    """What it mixes: batches ``[B, C, …]`` of images, signals or volumes, or clouds of points ``[B, N, 3]``."""
    works_with: ClassVar[str | None] = None
    """The option that holds a network of its own or its description, such as the ``block`` of SAMix; None where there is none."""
    published: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What the authors call options that have another name here."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the keywords, such as ``saliency``, that ``plan`` must be given beside ``x``."""
        return ()

    @property
    def accepts(self) -> tuple[str, ...]:
        """Names of all keywords that ``plan`` takes beside ``x`` and ``generator``."""
        return self.needs

    @property
    def mixes_at(self) -> tuple[str | None, ...]:
        """Where mixing may happen: names of hidden layers, None for the input."""
        return (None,)

    @property
    def clean_weight(self) -> float:
        """Weight of the clean loss beside the mixed one, in :func:`multimix.mixed_loss`; a dataclass field may take its place."""
        return 0.0

    @property
    def mixed_weight(self) -> float:
        """Weight of the mixed loss, in :func:`multimix.mixed_loss`; below 1 for methods that split one step in two."""
        return 1.0

    @property
    def watches(self) -> str | None:
        """Name of the layer whose output :meth:`extra_loss` is made of, in :func:`multimix.mixed_loss`; None without a term."""
        return None

    @property
    def carries(self) -> tuple[str, ...]:
        """Names of the keywords that one batch may hand on to the next: ``Term.carried`` of :func:`multimix.mixed_terms`."""
        return ()

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        """The networks of its own by name, for a checkpoint to hold; empty for most."""
        return {}

    @property
    def learners(self) -> tuple[Any, ...]:
        """Those that learn beside the model: an optimiser has ``parameters_to_train()``; after it they ``update(model)``."""
        return ()

    @property
    def clean_scale(self) -> CleanScale:
        """What the clean weight multiplies: ``plain`` the cross-entropy, ``per_class`` 2/C of it, beside a mean over classes.

        ``auto`` is ``per_class`` beside :func:`multimix.softmax_bce` and ``plain`` beside any other loss. ``loss`` is the loss
        of the training itself, on the clean batch and its labels as they are trained on.
        """
        return "auto"

    def fitted(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        updates: int | None = None,
        generator: Generator | None = None,
        blank: bool = False,
    ) -> "Method":
        """The method with its network made, if it had only the description of one; the others are returned as they are.

        ``model`` will be trained with it, in so many ``updates`` where they are known, on such ``images [N, C, …]`` as it is
        given. ``blank`` leaves out what the network would learn from them, since weights are loaded next.
        """
        described = None if self.works_with is None else getattr(self, self.works_with)
        if not isinstance(described, NewNetwork):
            return self
        check_batch(images)
        check_finite(images, "images")
        if updates is not None and (not is_whole(updates) or updates < 1):
            raise ValueError(f"updates must be a whole number, at least 1, or None, got {updates!r}")
        made = described.made(model, images, updates=updates, generator=resolved(generator), blank=blank)
        changed: Any = {self.works_with: made}
        fitted: Method = replace(self, **changed)  # type: ignore[type-var]  # methods are dataclasses
        return fitted

    def choose(self, *, generator: Generator | None = None) -> "Method | None":
        """The method for the next batch, or None if it stays unmixed. All coins are thrown: choosing again draws nothing."""
        return self

    def prepare(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        generator: Generator,
        output: Output | None = None,
        given: Collection[str] = (),
    ) -> Prepared:
        """What ``plan`` needs beside the keywords named in ``given``, asked of ``model``; ``y`` are indices or probabilities.

        Nothing runs if nothing is missing. A method with a clean weight runs the model as it is and keeps the loss.
        """
        missing = [name for name in self.needs if name not in given]
        for name in missing:
            if name != "saliency":
                raise TypeError(_needs(self, name))
        if self.clean_weight > 0:
            clean = clean_pass(model, x, y, training=True, output=output)
            return Prepared({"saliency": clean.saliency} if missing else {}, clean.loss, clean.logits)
        return Prepared({"saliency": input_saliency(model, x, y, output=output)} if missing else {})

    def plan(self, x: Tensor, *, generator: Generator | None = None, **given: Any) -> Plan:
        """All draws and solves for one batch ``x [B, …]``, in the order pair, path, geometry; K never changes the pair."""
        check_batch(x, self.mixes_at)
        self.check_given(given)
        for name in self.needs:
            if name not in given:
                raise TypeError(_needs(self, name))  # before any coin is thrown: not now and then in the middle of training
        generator = resolved(generator)
        return chosen_plan(chosen_method(self, generator), x, generator, given)

    def check_given(self, given: Iterable[str]) -> None:
        """Raise one sentence if ``plan`` does not take all keywords named in ``given``."""
        for name in given:
            if name not in self.accepts:
                raise TypeError(f"{type(self).__name__}.plan takes no {name!r}; it takes {', '.join(self.accepts) or 'x only'}")

    def extra_loss(self, model: nn.Module, plan: Plan, features: Tensor) -> Tensor:
        """The method's own term of the loss of a mixed batch: a mean over its rows, of what the layer it watches put out."""
        raise NotImplementedError

    def carried(self, plan: Plan, x: Tensor, target: Tensor, logits: Tensor) -> Mapping[str, Tensor]:
        """What the next batch should be given, from the rows of ``plan`` or of a part of it; without gradients."""
        return {}

    @abstractmethod
    def draw(self, x: Tensor, *args: Any, **kwargs: Any) -> Plan:
        """The plan of a batch that is certainly mixed; draws are made on the CPU from ``generator``."""


def check_method(method: Any) -> None:
    """Raise one sentence unless ``method`` is a mixing method, made and not only named."""
    if not isinstance(method, Method):
        got = f"{method!r}; multimix.create makes one by its name" if isinstance(method, str) else type(method).__name__
        raise TypeError(f"method must be a mixing method such as CutMix(k=5), got {got}")


def check_no_clean_loss(method: Method, where: str) -> None:
    """Raise one sentence if ``method`` adds a loss of its own, which is lost on whoever hands out logits or samples only."""
    check_method(method)
    if method.watches is not None:
        raise ValueError(
            f"{type(method).__name__} adds a loss of what layer {method.watches!r} puts out, which {where} cannot hand out: "
            "use mixed_loss or mixed_terms"
        )
    if method.clean_weight > 0:
        raise ValueError(
            f"{type(method).__name__} adds a clean loss of weight {method.clean_weight:g}, which {where} cannot hand out: "
            "use mixed_loss or mixed_terms"
        )
    if method.learners:
        raise ValueError(
            f"{type(method).__name__} trains its {method.works_with} by a loss that {where} cannot hand out: use mixed_loss, or "
            "train_block=False"
        )


def check_handed_on(method: Method, given: Collection[str], where: str) -> None:
    """Raise one sentence if ``method`` mixes with what it keeps of the batch before, which ``where`` does not hand out."""
    method.check_given(given)  # a misspelt name first
    if method.carries and not any(name in given for name in method.carries):
        raise ValueError(
            f"{type(method).__name__} mixes with the batch before, which {where} does not hand on: use mixed_terms, or give "
            f"{', '.join(f'{name}=' for name in method.carries)} yourself, None for the first batch"
        )


def chosen_method(method: Method, generator: Generator) -> Method | None:
    """``method.choose``, with the draw on the CPU whatever torch.set_default_device says."""
    with _on_the_cpu():
        chosen = method.choose(generator=generator)
    if chosen is not None and chosen.works_with is not None and isinstance(getattr(chosen, chosen.works_with), NewNetwork):
        raise ValueError(
            f"{type(chosen).__name__} has only the description of its {chosen.works_with}: "
            "use what method.fitted(model, images) returns, before the first batch"
        )
    return chosen


def chosen_plan(chosen: Method | None, x: Tensor, generator: Generator, given: Mapping[str, Any]) -> Plan:
    """The plan of a method for which all coins are thrown, None for a batch that stays unmixed; it takes its own of ``given``."""
    if chosen is None:
        return unmixed_plan(x)
    for name in chosen.needs:
        if name not in given:
            raise TypeError(_needs(chosen, name))
    wanted = {name: value for name, value in given.items() if name in chosen.accepts}
    with _on_the_cpu():
        plan = chosen.draw(x, generator=generator, **wanted)
    return plan if x.device.type == "cpu" else plan.to(x.device)


def _needs(method: Method, name: str) -> str:
    of_points = ", such as multimix.methods.sagemix.method.point_saliency(model, x, y)"
    hint = of_points if (name, method.layout) == ("saliency", "points") else WHERE_FROM.get(name, "")
    return f"{type(method).__name__}.plan needs {name}={hint}"


def _on_the_cpu() -> AbstractContextManager[Any]:
    # Only where it is needed: the context slows every call of torch down.
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")


def unmixed_plan(x: Tensor) -> PairPlan:
    """The batch as it is."""
    return UnmixedPlan(partner=torch.arange(len(x), device=x.device), size=x.shape[2:])


@dataclass(frozen=True, kw_only=True)
class PathMethod(Method):
    """K interpolations, made with probability ``p`` per batch; otherwise the batch is not mixed and keeps its B rows."""

    k: int = 1
    p: float = 1.0

    def __post_init__(self) -> None:
        check_path_options(self.k, 0, "iid")
        check_share("p", self.p)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        if self.p == 1:
            return self
        heads = float(torch.rand((), generator=resolved(generator), dtype=torch.float64)) < self.p
        return replace(self, p=1.0) if heads else None


@dataclass(frozen=True, kw_only=True)
class PairMethod(PathMethod):
    """K points on the way from a sample to its partner, λ_1 < … < λ_K from Beta(α, α); α = 0 is no mixing.

    One path serves the whole batch, as in the paper, or with ``per_pair`` every pair has its own path and geometry.
    ``sampler`` is iid, stratified or grid (:func:`multimix.sample_path`); ``derange`` keeps samples from being their own
    partners.
    """

    alpha: float = 1.0
    sampler: Sampler = "iid"
    per_pair: bool = False
    derange: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path_options(self.k, self.alpha, self.sampler)

    @property
    def accepts(self) -> tuple[str, ...]:
        """``partner [B]`` and an ascending ``lam [K]``, ``[K, 1]`` or ``[K, B]`` may be handed in instead of being drawn."""
        return (*self.needs, "partner", "lam")

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        return None if self.alpha == 0 else super().choose(generator=generator)

    def draw(
        self,
        x: Tensor,
        *,
        generator: Generator,
        partner: Tensor | None = None,
        lam: Tensor | Sequence[float] | None = None,
        **given: Any,
    ) -> PairPlan:
        partner = self.pairs(x, partner, generator)
        lam = self.path(x, generator) if lam is None else checked_path(lam, len(x))
        return self.build(x, partner, lam, generator=generator, **given)

    def pairs(self, x: Tensor, partner: Tensor | None, generator: Generator) -> Tensor:
        """``partner [B]``: the one handed in, or drawn."""
        if partner is None:
            return random_partner(len(x), derange=self.derange, generator=generator)
        return checked_partner(partner, len(x))

    def path(self, x: Tensor, generator: Generator) -> Tensor:
        """``lam [K, 1 or B]``, drawn where none is handed in."""
        rows = len(x) if self.per_pair else 1
        return sample_path(self.k, self.alpha, rows=rows, sampler=self.sampler, generator=generator)

    @abstractmethod
    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *args: Any, **kwargs: Any) -> PairPlan:
        """The plan for pairs ``partner [B]`` at the shares ``lam [K, 1 or B]``; only the geometry is left to draw."""

    def rows(self, x: Tensor, lam: Tensor) -> int:
        """How many geometries to draw: one per pair if paths or geometry are per pair, else one."""
        return len(x) if self.per_pair else lam.shape[1]


class NewNetwork(ABC):
    """Stands for a network until :meth:`multimix.methods.Method.fitted` has the model and the images it is made of."""

    @abstractmethod
    def made(self, model: nn.Module, images: Tensor, *, updates: int | None, generator: Generator, blank: bool) -> Any:
        """The network for a training of ``updates`` steps of ``model`` on such ``images [N, C, …]``, where they are.

        ``blank`` leaves out what it would learn from them: weights are loaded next.
        """
