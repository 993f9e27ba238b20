"""What a mixing method is: options and a plan; all else has a default here.

A method of pairs is a frozen dataclass that derives from :class:`PairMethod` and defines ``build``. Keywords of ``build`` and
``draw`` are those of ``plan``: one without a default, such as ``saliency``, is what the method needs beside ``x``.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Generator, Tensor, nn

from ..batch import Batch, Criterion, Mixed
from ..checks import check_batch, check_choice, check_finite, check_share, check_whole, plain
from ..plan import PairPlan, Plan, UnmixedPlan
from ..saliency import input_saliency
from ..sampling import Sampler, check_path_options, checked_partner, checked_path, drawn_partner, drawn_path, resolved

Made = TypeVar("Made", bound="PathMethod")
PLAIN = (int, float, str, type(None))
WHERE_FROM = {
    "saliency": ", such as multimix.input_saliency(model, x, y)",
    "noise": ", which mixed_logits, mixed_loss and Mix(…, model=) make with the model",
}


class Traits(NamedTuple):
    """What others have to know about a method before they call it.

    Beside ``x`` and ``generator`` its plan ``accepts`` the keywords of ``build`` and ``draw``, and ``needs`` those without a
    default. Mixing may happen at the hidden layers that ``mixes_at`` names, None for the input. ``own_loss`` is
    what ``loss`` adds to the criterion, in words such as "adds a clean loss"; whoever has logits and targets only would lose it,
    so :func:`multimix.mixed_logits` and :class:`multimix.Mix` refuse.
    """

    accepts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    mixes_at: tuple[str | None, ...] = (None,)
    own_loss: str | None = None

    @property
    def history(self) -> tuple[str, ...]:
        """The keywords that come from the batch before (:meth:`multimix.batch.Mixed.next_history`)."""
        return tuple(name for name in self.accepts if name.startswith("history_"))


def _traits(kind: type[Any]) -> Traits:
    """What the keywords of ``build`` and ``draw`` say."""
    found: dict[str, bool] = {}
    for function in (getattr(kind, name) for name in ("build", "draw") if hasattr(kind, name)):
        for option in inspect.signature(function).parameters.values():
            if option.kind is option.KEYWORD_ONLY and option.name != "generator":
                found.setdefault(option.name, option.default is option.empty)
    return Traits(tuple(found), tuple(name for name, required in found.items() if required))


def _closed_options(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    """The options that are annotated with a ``Literal``, and their values."""
    return {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}


class Method(ABC):
    """A way of mixing. Frozen: everything drawn goes into the plan, nothing is stored here.

    ======================  ===========================================================================================
    every method            options (dataclass fields), ``draw`` (or ``build`` of :class:`PairMethod`): the plan
    asks the model          ``inputs``: keywords for the plan, such as a saliency map, and what its ``loss`` will need
    has a loss of its own   ``loss``
    has networks            ``modules``, ``bind``, ``after_step``
    draws who mixes         ``choose``
    is unlike most          ``traits``: hidden layers, a loss of its own, keywords that depend on options
    ======================  ===========================================================================================
    """

    name: ClassVar[str]
    layout: ClassVar[Literal["images", "points", "any"]] = "images"
    """Name and layout are set by :func:`multimix.methods.registry.register`."""
    needs_shape_only: ClassVar[bool] = False
    """Whether ``draw`` needs nothing but a generator and the shape of ``x``."""
    _traits: ClassVar[Traits]
    _closed_options: ClassVar[Mapping[str, tuple[Any, ...]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Now, and not with a cache when they are asked for: torch.compile traces through caches, and warns.
        cls._traits = _traits(cls)
        cls._closed_options = _closed_options(cls)

    def plan(self, x: Tensor, *, generator: Generator | None = None, **given: Any) -> Plan:
        """All draws and solves for one batch ``x [B, …]``, in the order pair, path, geometry; K never changes the pair."""
        check_batch(x, self.traits.mixes_at)
        x = plain_samples(self, x)
        check_given(self, given)
        check_needs(self, given)  # before any random choice is made: not now and then in the middle of training
        generator = resolved(generator)
        return chosen_plan(chosen_method(self, generator), x, generator, given)

    @abstractmethod
    def draw(self, x: Tensor, *args: Any, **kwargs: Any) -> Plan:
        """The plan of a batch that is certainly mixed; draws are made on the CPU from ``generator``."""

    @property
    def traits(self) -> Traits:
        """What others have to know about it."""
        return self._traits

    def choose(self, *, generator: Generator | None = None) -> "Method | None":
        """The method for the next batch, or None if it stays unmixed. Choosing again draws nothing: all choices are made."""
        return self

    def is_certain(self) -> bool:
        """Whether ``choose`` draws nothing and the method stays what it is."""
        return False

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """What the model is asked before ``plan``: keywords that ``batch.given`` lacks, and anything that ``loss`` will need."""
        if all(name in batch.given for name in self.traits.needs):
            return {}
        check_needs(self, ["saliency", *batch.given])
        return {"saliency": input_saliency(batch.model, batch.x, batch.y, output=batch.output)}

    def loss(self, batch: Batch, mixed: Mixed, criterion: Criterion) -> Tensor:
        """The loss of a mixed batch, or of a part of its K steps; ``criterion`` is that of the training."""
        return mixed.share * criterion(mixed.logits, mixed.target)

    @property
    def modules(self) -> nn.ModuleDict:
        """Networks of its own, to be moved and stored with the model; weights of theirs that require a gradient are trained."""
        return nn.ModuleDict()

    def bind(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        updates: int | None = None,
        generator: Generator | None = None,
        learn: bool = True,
    ) -> "Method":
        """The method with its networks made where it has only descriptions of them; itself if there is nothing to make.

        ``model`` will be trained with it, in so many ``updates`` where they are known, on such ``images [N, C, …]`` as it is
        given. Ranks that are seeded alike and given the same images make the same networks; :func:`multimix.broadcast_networks`
        makes them the same in any case. Without ``learn`` a network does not learn from them, since weights are loaded next.
        """
        described = descriptions(self)
        if not described:
            return self
        check_batch(images)
        check_finite(images, "images")
        check_whole("updates", updates, none=True)
        start = resolved(generator, ranks_alike=True)
        made: Any = {
            name: network.make(model, images, updates=updates, generator=start, learn=learn)
            for name, network in described.items()
        }
        bound: Method = replace(self, **made)  # type: ignore[type-var]  # methods are dataclasses
        return bound

    def after_step(self, model: nn.Module) -> None:  # noqa: B027  most methods have nothing to do
        """What has to follow each step of the optimiser, such as a moving average of the weights of ``model``."""


class NewNetwork(ABC):
    """The description of a network, until :meth:`Method.bind` has the model and the images it is made of."""

    @abstractmethod
    def make(self, model: nn.Module, images: Tensor, *, updates: int | None, generator: Generator, learn: bool) -> Any:
        """The network for a training of ``updates`` steps of ``model`` on such ``images [N, C, …]``, where they are.

        Without ``learn`` it learns nothing from them: weights are loaded next.
        """


@dataclass(frozen=True, kw_only=True)
class PathMethod(Method):
    """K interpolations, made with probability ``p`` per batch; otherwise the batch is not mixed and keeps its B rows."""

    k: int = 1
    p: float = 1.0

    def __new__(cls: type[Made], *given: object, **options: object) -> Made:
        if given:
            words = ", ".join(map(repr, given))
            raise TypeError(f"{cls.__name__} takes its options by name, such as {cls.__name__}(k=5), got {cls.__name__}({words})")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_path_options(self.k, 0, "iid")
        check_share("p", self.p)
        for name, choices in self._closed_options.items():
            check_choice(name, getattr(self, name), choices)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        if self.p == 1:
            return self
        heads = float(torch.rand((), generator=resolved(generator), dtype=torch.float64, device="cpu")) < self.p
        return replace(self, p=1.0) if heads else None


@dataclass(frozen=True, kw_only=True)
class PairMethod(PathMethod):
    """K points on the way from a sample to its partner, λ_1 < … < λ_K from Beta(α, α); α = 0 is no mixing.

    One path serves the whole batch, as in the paper, or with ``per_pair`` every pair has its own path and geometry.
    ``sampler`` is iid, stratified, antithetic or grid (:func:`multimix.sample_path`); ``derange`` keeps samples from being their
    own partners. ``plan`` takes ``partner [B]`` and an ascending ``lam [K]``, ``[K, 1]`` or ``[K, B]`` instead of drawing them.
    """

    alpha: float = 1.0
    sampler: Sampler = "iid"
    per_pair: bool = False
    derange: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path_options(self.k, self.alpha, self.sampler)

    def choose(self, *, generator: Generator | None = None) -> Method | None:
        return None if self.alpha == 0 else super().choose(generator=generator)

    def is_certain(self) -> bool:
        return self.p == 1 and self.alpha > 0

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
        """``partner [B]``: the caller's, or drawn."""
        if partner is None:
            return drawn_partner(x.shape[0], self.derange, generator)
        return checked_partner(partner, len(x))

    def path(self, x: Tensor, generator: Generator) -> Tensor:
        """``lam [K, 1 or B]``, drawn where the caller gives none."""
        rows = len(x) if self.per_pair else 1
        return drawn_path(self.k, self.alpha, None, rows, self.sampler, generator)

    @abstractmethod
    def build(self, x: Tensor, partner: Tensor, lam: Tensor, *args: Any, **kwargs: Any) -> PairPlan:
        """The plan for pairs ``partner [B]`` at the shares ``lam [K, 1 or B]``; only the geometry is left to draw."""

    def rows(self, x: Tensor, lam: Tensor) -> int:
        """How many geometries to draw: one per pair if paths or geometry are per pair, else one."""
        return len(x) if self.per_pair else lam.shape[1]


def check_method(method: Any) -> None:
    """Raise TypeError unless ``method`` is a mixing method, made and not only named."""
    if not isinstance(method, Method):
        got = f"{method!r}; multimix.create makes one by its name" if isinstance(method, str) else type(method).__name__
        raise TypeError(f"method must be a mixing method such as CutMix(k=5), got {got}")


def check_given(method: Method, given: Collection[str]) -> None:
    """Raise TypeError unless ``method.plan`` takes all keywords named in ``given``."""
    accepts = method.traits.accepts
    for name in given:
        if name not in accepts:
            raise TypeError(f"{type(method).__name__}.plan takes no {name!r}; it takes {', '.join(accepts) or 'x only'}")


def check_needs(method: Method, given: Collection[str]) -> None:
    """Raise TypeError unless all keywords that ``method.plan`` needs are named in ``given``."""
    for name in method.traits.needs:
        if name not in given:
            of_points = ", such as multimix.methods.sagemix.method.point_saliency(model, x, y)"
            hint = of_points if (name, method.layout) == ("saliency", "points") else WHERE_FROM.get(name, "")
            raise TypeError(f"{type(method).__name__}.plan needs {name}={hint}")


def plain_samples(method: Method, x: Tensor) -> Tensor:
    """``x`` as a plain tensor; ValueError if it is a ``tv_tensors.Video``, whose frames ``method`` would take for channels."""
    if type(x) is not Tensor and type(x).__name__ == "Video" and method.layout == "images" and None in method.traits.mixes_at:
        raise ValueError(
            f"{type(method).__name__} would take the frames of a Video [B, T, C, H, W] for channels: pass x.flatten(1, 2) to cut "
            "the same area out of all frames, and undo it with x_mix.unflatten(1, (T, C)), or x.transpose(1, 2) to cut through "
            "time, too"
        )
    return plain(x)


def chosen_method(method: Method, generator: Generator) -> Method | None:
    """``method.choose``, with the draw on the CPU whatever torch.set_default_device says."""
    with _on_the_cpu():
        chosen = method.choose(generator=generator)
    for name in {} if chosen is None else descriptions(chosen):
        raise ValueError(
            f"{type(chosen).__name__} has only the description of its {name}: "
            "use what method.bind(model, images) returns, before the first batch"
        )
    return chosen


def chosen_plan(chosen: Method | None, x: Tensor, generator: Generator, given: Mapping[str, Any]) -> Plan:
    """The plan of a method that was chosen, None for a batch that stays unmixed; of ``given`` it takes what it accepts."""
    if chosen is None:
        return unmixed_plan(x)
    check_needs(chosen, given)
    accepts = chosen.traits.accepts
    wanted = {name: value for name, value in given.items() if name in accepts}
    with _on_the_cpu():
        plan = chosen.draw(x, generator=generator, **wanted)
    return plan if x.device.type == "cpu" else plan.to(x.device)


def unmixed_plan(x: Tensor) -> PairPlan:
    """The batch as it is."""
    return UnmixedPlan(partner=torch.arange(len(x), device=x.device), size=x.shape[2:])


def descriptions(method: Method) -> dict[str, NewNetwork]:
    """The options of a method that hold only the description of a network."""
    return {
        name: value
        for name, value in vars(method).items()
        if not isinstance(value, PLAIN) and isinstance(value, NewNetwork)  # the first is quick to ask
    }


def trained_parameters(method: Method) -> list[nn.Parameter]:
    """The weights of a method's own networks that an optimiser has to train beside those of the model."""
    return [weight for weight in method.modules.parameters() if weight.requires_grad]


def _on_the_cpu() -> AbstractContextManager[Any]:
    # Only where it is needed: the context slows every call of torch down. A default device is a mode of torch's functions; not
    # get_default_device, which in torch 2.6 and 2.7 does not see ``with torch.device(…)``.
    no_mode = torch._C._len_torch_function_stack() == 0
    return nullcontext() if no_mode or torch.empty(0).device.type == "cpu" else torch.device("cpu")
