"""The interface of a mixing method.

A method of pairs is a frozen dataclass that derives from :class:`.path.PairMethod` and defines
``build``. Keyword-only arguments of ``build`` and ``draw`` become keywords of ``plan``. Those
without a default, such as ``saliency``, are required.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, Field, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Generator, Tensor, nn

from ..core.batch import Batch, MixedBatch
from ..core.checks import check_batch, check_whole, nearest, plain
from ..core.losses import Criterion
from ..core.plan import Plan, unmixed_plan
from ..core.saliency import input_saliency
from ..core.sampling import make_generator

Made = TypeVar("Made", bound="Method")
OPTION_EXAMPLES = {
    "k": "5",
    "layers": "('layer1', 'layer2')",
    "block": "NewBlock('layer3')",
    "pair": "NewPair()",
    "methods": "(InputMixup(), CutMix())",
}
"""Values of options for error messages."""
WHERE_FROM = {
    "saliency": ", such as multimix.input_saliency(model, x, y)",
    "noise": ", which mixed_forward and Mix(…, model=) compute with the model",
}


class Traits(NamedTuple):
    """Properties of a method that its callers depend on.

    Attributes:
        accepts: Keywords of ``plan`` beside ``x`` and ``generator``.
        needs: The required ones among them.
        mixes_at: Names of the hidden layers that may be mixed; None is the input.
        own_loss: Term that ``loss`` adds to the criterion, such as "adds a clean loss", or None.
            :class:`multimix.Mix` rejects such methods, since it returns no loss.
        watches: Name of a layer whose output ``loss`` needs.
    """

    accepts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    mixes_at: tuple[str | None, ...] = (None,)
    own_loss: str | None = None
    watches: str | None = None

    @property
    def history(self) -> tuple[str, ...]:
        """The keywords that come from the previous batch."""
        return tuple(name for name in self.accepts if name.startswith("history_"))


def _traits(kind: type[Any]) -> Traits:
    """Derive the traits from the keywords of ``build`` and ``draw``."""
    required: dict[str, bool] = {}
    for function in (getattr(kind, name) for name in ("build", "draw") if hasattr(kind, name)):
        for option in inspect.signature(function).parameters.values():
            if option.kind is option.KEYWORD_ONLY and option.name != "generator":
                required.setdefault(option.name, option.default is option.empty)
    return Traits(tuple(required), tuple(name for name, needed in required.items() if needed))


def _literal_options(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    """Return the options annotated with a ``Literal`` and their allowed values."""
    hints = get_type_hints(kind).items()
    return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}


class Method(ABC):
    """Base class of all methods. Instances are frozen: random draws are stored in the plan.

    Override these members:

    ======================  ====================================================================
    always                  options (dataclass fields), ``draw`` (or ``build`` of PairMethod)
    to run the model        ``inputs``: keywords for ``plan`` and values for ``loss``
    to add a loss term      ``loss``
    to use networks         ``modules``, ``bind``, ``after_step``
    to choose per batch     ``choose``
    to change the traits    ``traits``: hidden layers, loss terms, keywords that depend on options
    ======================  ====================================================================
    """

    name: ClassVar[str]
    layout: ClassVar[Literal["images", "points", "any"]] = "images"
    """Set by :func:`multimix.register`, as is ``name``."""
    _traits: ClassVar[Traits]
    _literal_options: ClassVar[Mapping[str, tuple[Any, ...]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Computed once per class: torch.compile warns about cached functions.
        cls._traits = _traits(cls)
        cls._literal_options = _literal_options(cls)

    def __new__(cls: type[Made], *args: object, **options: object) -> Made:
        known: dict[str, Field[Any]] | None = getattr(cls, "__dataclass_fields__", None)
        if known is None:
            return super().__new__(cls)
        positional: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
        if len(args) > len(positional):
            example = _call_example(cls, next(iter(known), "k"))
            raise TypeError(f"options of {cls.__name__} must be keywords, such as {example}")
        for name in options:
            if name not in known:
                lower = name.lower()
                hint = f" (did you mean {lower!r}?)" if lower in known else nearest(name, known)
                raise TypeError(f"{cls.__name__} has no option {name!r}{hint}")
        given = {*positional[: len(args)], *options}
        for name, option in known.items():
            has_default = option.default is not MISSING or option.default_factory is not MISSING
            if option.init and not has_default and name not in given:
                example = _call_example(cls, name)
                raise TypeError(f"{cls.__name__} requires {name}=, such as {example}")
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        # pickle and copy call __new__, which requires the options without a default.
        fields: dict[str, Field[Any]] = getattr(self, "__dataclass_fields__", {})
        return (), {name: getattr(self, name) for name, option in fields.items() if option.init}

    def plan(self, x: Tensor, *, generator: Generator | None = None, **given: Any) -> Plan:
        """Draw partners, λ and geometry for one batch, and solve for its masks.

        Draws are made in the order partners, λ, geometry, so K does not change the partners.

        Args:
            x: ``[B, …]`` samples.
            generator: A CPU generator; None draws from torch's global CPU stream.
            **given: Keywords of the method, such as ``partner``, ``lam`` or ``saliency``.

        Returns:
            A plan on the device of ``x``.

        Raises:
            TypeError: If a keyword is unknown, or a required one is missing.
            ValueError: If the method cannot mix samples of this shape, or a value is invalid.
        """
        traits = self.traits
        x = checked_samples(self, x, traits.mixes_at)
        check_given(self, traits.accepts, given)
        check_needs(self, traits.needs, given)
        generator = make_generator(generator)
        return draw_plan(choose_method(self, generator), x, generator, given)

    @abstractmethod
    def draw(self, x: Tensor, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan of a batch that is mixed.

        Args:
            x: ``[B, …]`` samples.
            *args: Not used.
            **kwargs: ``generator``, the CPU generator of all draws, and keywords of the method.

        Returns:
            The plan.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise TypeError with the calls that mix a batch."""
        name = type(self).__name__
        raise TypeError(
            f"a method is not callable: use Mix({name}(…), num_classes)(x, y), "
            f"mixed_forward(model, {name}(…), x, y), or .plan(x).mix(x)"
        )

    @property
    def traits(self) -> Traits:
        """The properties that callers depend on: see :class:`Traits`."""
        return self._traits

    def choose(self, *, generator: Generator | None = None) -> "Method | None":
        """Return the method for the next batch.

        Args:
            generator: A CPU generator; None draws from torch's global CPU stream.

        Returns:
            The method, or None if the batch stays unmixed.
        """
        return self

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Run the model to compute keywords that ``batch.given`` lacks and values for ``loss``.

        Args:
            batch: Samples, labels, model and the keywords that the caller passed.

        Returns:
            Values by keyword, which are added to ``batch.given``.

        Raises:
            TypeError: If a required keyword other than ``saliency`` is missing.
        """
        needs = self.traits.needs
        if batch.given.keys() >= set(needs):
            return {}
        check_needs(self, needs, ["saliency", *batch.given])
        return {"saliency": input_saliency(batch.model, batch.x, batch.y, output=batch.output)}

    def loss(self, mixed: MixedBatch, criterion: Criterion) -> Tensor:
        """Compute the loss of a mixed batch, or of a part of its K steps.

        Args:
            mixed: Logits and targets of the part, and the batch they come from.
            criterion: The caller's loss.

        Returns:
            A scalar. The losses of all parts sum to the loss of the batch.
        """
        return mixed.share * criterion(mixed.logits, mixed.target)

    @property
    def modules(self) -> nn.ModuleDict:
        """The method's networks. Move and save them with the model."""
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
        """Create the networks that options such as ``NewBlock`` describe.

        Args:
            model: The model that will be trained.
            images: ``[N, C, …]`` examples of its inputs. Ranks with the same seed and images create
                the same networks; ``multimix.distributed.broadcast_networks`` guarantees it.
            updates: Number of optimizer steps of the training, if known.
            generator: A CPU generator for initial weights.
            learn: Fit networks to the images. Pass False if you load their weights next.

        Returns:
            A copy of the method with networks, or ``self`` if it describes none.

        Raises:
            ValueError: If ``updates`` is not a positive integer or None.
        """
        described_networks = descriptions(self)
        if not described_networks:
            return self
        check_batch(images)
        check_whole("updates", updates, none=True)
        start = make_generator(generator, same_on_all_ranks=True)
        networks: Any = {
            name: network.make(model, images, updates=updates, generator=start, learn=learn)
            for name, network in described_networks.items()
        }
        bound: Method = replace(self, **networks)  # type: ignore[type-var]  # methods are dataclasses
        return bound

    def after_step(self, model: nn.Module) -> None:  # noqa: B027  most methods do nothing
        """Update the method's networks after an optimizer step.

        Args:
            model: The model that is trained.
        """


class NewNetwork(ABC):
    """The description of a network that :meth:`Method.bind` creates."""

    @abstractmethod
    def make(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        updates: int | None,
        generator: Generator,
        learn: bool,
    ) -> Any:
        """Create the network.

        Args:
            model: The model that will be trained.
            images: ``[N, C, …]`` examples of its inputs.
            updates: Number of optimizer steps, if known.
            generator: A CPU generator for initial weights.
            learn: Fit the network to the images.

        Returns:
            The network, which replaces the description in the method.
        """


def check_method(method: Any) -> None:
    """Raise TypeError unless ``method`` is an instance of a mixing method."""
    if isinstance(method, Method):
        return
    got = type(method).__name__
    if isinstance(method, str):
        got = f"{method!r}; multimix.create({method!r}) creates a method by name"
    elif isinstance(method, type):
        got = f"the class {method.__name__}; write {method.__name__}(k=5)"
    raise TypeError(f"method must be a mixing method such as CutMix(k=5), got {got}")


def _call_example(kind: type[Method], option: str) -> str:
    return f"{kind.__name__}({option}={OPTION_EXAMPLES.get(option, '…')})"


def checked_layers(layers: Any, *, allow_input: bool = False) -> tuple[Any, ...]:
    """Return the names of layers as a tuple, or raise ValueError."""
    names = tuple(layers) if isinstance(layers, list | tuple) else ()
    allowed = (str, type(None)) if allow_input else (str,)
    if not names or not all(isinstance(name, allowed) for name in names):
        example = "(None, 'layer1'), None for the input" if allow_input else "('layer1', 'layer2')"
        raise ValueError(
            f"layers must be a tuple of names from model.named_modules(), such as {example}, "
            f"got {layers!r}"
        )
    return names


def check_given(method: Method, accepts: tuple[str, ...], given: Collection[str]) -> None:
    """Raise TypeError if ``given`` holds a keyword that ``plan`` does not accept."""
    for name in given:
        if name not in accepts:
            accepted = ", ".join(accepts) or "x"
            raise TypeError(f"{type(method).__name__}.plan takes no {name!r}, only {accepted}")


def check_needs(method: Method, needs: tuple[str, ...], given: Collection[str]) -> None:
    """Raise TypeError if ``given`` lacks a required keyword of ``plan``."""
    for name in needs:
        if name not in given:
            point_hint = ", such as multimix.methods.sagemix.method.point_saliency(model, x, y)"
            is_points = (name, method.layout) == ("saliency", "points")
            hint = point_hint if is_points else WHERE_FROM.get(name, "")
            raise TypeError(f"{type(method).__name__}.plan needs {name}={hint}")


def checked_samples(method: Method, x: Tensor, layers: tuple[str | None, ...]) -> Tensor:
    """Return ``x`` as a plain tensor; raise if ``method`` cannot mix it at ``layers``."""
    check_batch(x, layers)
    if type(x) is Tensor:
        return x
    if type(x).__name__ == "Video" and method.layout == "images" and None in layers:
        raise ValueError(
            f"{type(method).__name__} would treat the frames of x, a Video [B, T, C, H, W], as "
            "channels: pass x.flatten(1, 2) to cut the same area from all frames and undo it with "
            "x_mix.unflatten(1, (T, C)), or pass x.transpose(1, 2) to cut along time as well"
        )
    return plain(x)


def choose_method(method: Method, generator: Generator) -> Method | None:
    """Return ``method.choose()``; raise ValueError if its networks were not created."""
    chosen = method.choose(generator=generator)
    for name, value in () if chosen is None else vars(chosen).items():
        if isinstance(value, NewNetwork):
            raise ValueError(
                f"{name} of {type(chosen).__name__} is only a description: "
                "use the method that method.bind(model, images) returns"
            )
    return chosen


def draw_plan(
    chosen: Method | None, x: Tensor, generator: Generator, given: Mapping[str, Any]
) -> Plan:
    """Draw and check the plan of ``chosen``; None returns the plan of an unmixed batch."""
    if chosen is None:
        return unmixed_plan(x)
    if given:  # OneOf passes keywords of all its methods
        accepts = chosen.traits.accepts
        given = {name: value for name, value in given.items() if name in accepts}
    with _on_cpu():
        plan = chosen.draw(x, generator=generator, **given)
        plan.check(len(x))
    return plan if x.is_cpu else plan.to(x.device)


def descriptions(method: Method) -> dict[str, NewNetwork]:
    """Return the options of a method that describe a network, by name."""
    return {name: value for name, value in vars(method).items() if isinstance(value, NewNetwork)}


def trained_parameters(method: Method) -> list[nn.Parameter]:
    """Return the weights of a method's networks that the optimizer must train with the model's."""
    return [weight for weight in method.modules.parameters() if weight.requires_grad]


def _on_cpu() -> AbstractContextManager[Any]:
    # Entered only if needed, because the context slows down every torch call. A default device is a
    # function mode; get_default_device of torch 2.6 and 2.7 ignores ``with torch.device(…)``.
    no_mode = torch._C._len_torch_function_stack() == 0
    if no_mode or torch.empty(0).device.type == "cpu":
        return nullcontext()
    return torch.device("cpu")
