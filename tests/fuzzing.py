"""Random calls of the public functions, sensible and not: each is right, refused in one sentence of ours, or a fault.

A call is a function of its number: ``outcome(number)`` makes it again. ``python tests/fuzzing.py FIRST COUNT`` makes many.
"""

import random
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy
import torch
from torch import nn

import multimix as mm
from multimix.core.checks import NotFiniteError
from multimix.methods import PairMethod
from multimix.methods.base import descriptions
from multimix.testing import saliency

# As they are now: a long campaign shall not stumble over files that are edited meanwhile.
SOURCES = {str(path): path.read_text().splitlines() for path in Path(mm.__file__).parent.rglob("*.py")}
RIGHT, REFUSED, FOREIGN, NOT_FINITE, WRONG = "right", "refused", "foreign error", "not finite", "wrong"
REFUSALS = (ValueError, TypeError, IndexError, NotFiniteError, mm.MixingError)


class Outcome(NamedTuple):
    """How a call ended, and what it was in words."""

    kind: str
    said: str
    call: str


class Network(nn.Module):
    """Class scores of samples of any shape; the layer ``body`` puts out what it is given."""

    def __init__(self, classes=3):
        super().__init__()
        self.body, self.scale, self.classes = nn.Identity(), nn.Parameter(torch.ones(())), classes

    def forward(self, x):
        z = self.body(x).flatten(1)
        scores = [(z * (c + 1)).sin().mean(1) for c in range(self.classes)]
        return torch.stack(scores, 1) * self.scale.to(z.dtype)


class ThreeChannels(nn.Sequential):
    """Takes images of 3 channels only."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


class Draw(random.Random):
    """Choices, most of them sensible."""

    def odd(self, share=0.04):
        return self.random() < share

    def some(self, sensible, *odd):
        return self.choice(odd) if odd and self.odd() else self.choice(sensible)

    def tensor_seed(self):
        return torch.Generator().manual_seed(self.randrange(2**31))


def outcome(number):
    """Make call ``number``."""
    draw = Draw(number)
    torch.manual_seed(number)
    call = draw.choice(CALLS)
    words = [call.__name__]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = call(draw, words.append)
    except Exception as error:
        return Outcome(*_refusal(error), " ".join(words))
    return Outcome(RIGHT if found is None else found, "", " ".join(words))


def _refusal(error):
    inner = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error}"
    lines = SOURCES.get(inner.filename, [])
    ours = inner.lineno <= len(lines) and type(error) in REFUSALS and lines[inner.lineno - 1].lstrip().startswith("raise ")
    return (REFUSED if ours else FOREIGN), f"{said.splitlines()[0][:300]} ({Path(inner.filename).name}:{inner.lineno})"


def shape(draw):
    batch = draw.choice([1, 2, 3, 5])
    sizes = [(4, 6), (5, 5), (8, 8), (7,), (1, 1), (2, 3, 4), ()]
    return draw.some([(batch, draw.choice([1, 2, 3]), *draw.choice(sizes))], (batch,), (), (0, 3, 4, 4), (batch, 0), (3, 2, 0, 4))


def values(draw, size, say, name="x"):
    """A tensor of ``size``, mostly of ordinary numbers."""
    x = torch.randn(size, generator=draw.tensor_seed())
    kind = draw.some(
        ["plain"] * 8 + ["half", "bfloat16", "double", "last", "constant", "uint8"],
        "nan", "inf", "-inf", "largest", "double largest", "huge", "tiny", "denormal", "complex", "float8", "int", "bool",
        "numpy", "list", "none", "meta", "sparse", "string",
    )  # fmt: skip
    say(f"{name}:{kind}{list(size)}")
    if kind in ("nan", "inf", "-inf") and x.numel() > 0:
        x.view(-1)[draw.randrange(x.numel())] = float(kind)
        return x.to(draw.choice([torch.half, torch.bfloat16, torch.float, torch.double]))
    scale = {"largest": 3e38, "huge": 1e30, "tiny": 1e-30, "denormal": 1e-42, "constant": 0.0}
    x = x.sign() * scale[kind] if kind in scale else x
    dtypes = {
        "half": torch.half, "bfloat16": torch.bfloat16, "double": torch.double, "complex": torch.complex64, "int": torch.long,
        "float8": torch.float8_e4m3fn,
    }  # fmt: skip
    x = x.to(dtypes[kind]) if kind in dtypes else x
    if kind == "double largest":
        return x.sign().double() * 1.7e308
    if kind == "uint8" and name == "x":
        return (x.abs() * 50).to(torch.uint8)
    if kind == "last" and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    odd = {
        "bool": lambda: x > 0, "numpy": lambda: x.numpy(), "list": lambda: x.tolist(), "none": lambda: None,
        "meta": lambda: x.to("meta"), "sparse": lambda: x.to_sparse(), "string": lambda: "x",
    }  # fmt: skip
    return odd[kind]() if kind in odd else x


def is_odd(x):
    """Whether a tensor or what stands for it holds something that no result can be expected of."""
    if not isinstance(x, torch.Tensor) or x.is_meta or x.is_complex() or x.layout != torch.strided:
        return True
    return not bool(torch.isfinite(x.double() if x.is_floating_point() else x).all())


def is_large(x):
    """Whether a model's own numbers may overflow for it, as for 1e30, in float16 earlier."""
    return is_odd(x) or bool((x.double().abs() > 1e4).any())


def labels(draw, batch, say, classes=3):
    kind = draw.some(
        ["long"] * 4 + ["int32", "uint8", "soft", "hot", "real", "map"],
        "uint16", "uint32", "uint64", "int8", "bool", "complex", "nan", "inf", "numpy", "none", "list", "short", "negative",
        "large", "real largest", "float8", "scalar", "meta",
    )  # fmt: skip
    say(f"y:{kind}")
    y = torch.randint(classes, (max(batch, 1),), generator=draw.tensor_seed())
    soft = torch.rand(max(batch, 1), classes, generator=draw.tensor_seed())
    soft = soft / soft.sum(1, keepdim=True)
    made = {
        "long": lambda: y, "soft": lambda: soft, "hot": lambda: (soft > 0.3).long(), "real": lambda: soft.double(),
        "map": lambda: soft.unsqueeze(-1).expand(-1, -1, 4).contiguous(), "complex": lambda: soft.to(torch.complex64),
        "nan": lambda: soft * float("nan"), "inf": lambda: soft / 0, "numpy": lambda: y.numpy(),
        "none": lambda: None,
        "list": lambda: y.tolist(), "short": lambda: y[:-1], "negative": lambda: y - 5, "large": lambda: y + 100,
        "real largest": lambda: (soft - 0.3).sign() * 3e38, "float8": lambda: soft.to(torch.float8_e4m3fn),
        "scalar": lambda: y[0], "bool": lambda: y > 0, "meta": lambda: y.to("meta"),
    }  # fmt: skip
    return made[kind]() if kind in made else y.to(getattr(torch, kind))


def number(draw, *sensible):
    return draw.some(sensible, -1, 0, 1.5, "x", None, float("nan"), float("inf"), True, 10**6, [1], numpy.int64(2))


def method(draw, say, **fixed):
    """A method with its example's options, some of them changed."""
    known = draw.choice(mm.registry.entries())
    options = dict(draw.choice(known.examples))
    options["k"] = number(draw, 1, 2, 5) if draw.odd(0.3) else draw.choice([1, 2, 3])
    if options["k"] == 10**6:
        options["k"] = 7
    for name in ("alpha", "p", "sampler", "per_pair", "derange"):
        if name in known.options and draw.odd(0.15):
            choices = {
                "sampler": ["iid", "stratified", "antithetic", "grid", "x", None],
                "per_pair": [True, False],
                "derange": [True, False],
            }
            options[name] = draw.choice(choices[name]) if name in choices else number(draw, 0.2, 1.0, 0)
    options.update(fixed)
    say(f"{known.name}({', '.join(f'{name}={value!r}' for name, value in options.items())})")
    made = known.method(**options)
    return made.bind(Network(), torch.randn(8, 2, 8, 8)) if descriptions(made) else made


def keywords(draw, made, x, say):
    """What ``plan`` of the method takes beside x; most of it sensible."""
    batch = len(x) if isinstance(x, torch.Tensor) and x.ndim else 1
    size = x.shape[2:] if isinstance(x, torch.Tensor) else ()
    given = {}
    for name in made.traits.needs:
        sensible = saliency(torch.zeros(batch, 1, *size))
        given[name] = draw.some([sensible], sensible * 0, -sensible, sensible[:1], None, "x", sensible.numpy(), sensible * 3e38)
        if name == "noise" and isinstance(x, torch.Tensor):
            given[name] = torch.zeros_like(x, dtype=torch.float32)
        if name == "label":
            given[name] = torch.zeros(batch, dtype=torch.long)
    if isinstance(made, PairMethod) and draw.odd(0.3):
        right = torch.randperm(batch, generator=draw.tensor_seed())
        given["partner"] = draw.some(
            [right, right.tolist()], "x", 1.5, None, right + 1, -right, right.float(), [[0]], right.numpy(), {}
        )
    if "lam" in made.traits.accepts and draw.odd(0.3):
        odd = (
            "x",
            0.5,
            [2.0],
            [],
            [float("nan")],
            [0.9, 0.1],
            None,
            ["a"],
            [[0.1] * 9],
            {},
            torch.tensor([0.5], dtype=torch.complex64),
        )
        given["lam"] = draw.some([[0.3], [0.0, 1.0], torch.rand(1), numpy.array([0.1, 0.5])], *odd)
    for name in made.traits.history:
        if draw.odd(0.5):
            given["history_x"] = torch.randn(batch, *(x.shape[1:] if isinstance(x, torch.Tensor) else ()))
            given["history_target"] = torch.eye(3)[torch.zeros(batch, dtype=torch.long)]
        else:
            given[name] = None
    if draw.odd(0.03):
        given[draw.choice(["saliensy", "partners", "label"])] = 1
    say(f"with {', '.join(f'{name}={_shown(value)}' for name, value in given.items())}" if given else "")
    return given


def _shown(value):
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:40]


def judged(result, *, k=None, batch=None, odd=False):
    """None for a right tensor; odd inputs may come out odd."""
    if not isinstance(result, torch.Tensor):
        return f"{WRONG}: a {type(result).__name__}"
    if k is not None and len(result) != k * batch:
        return f"{WRONG}: {len(result)} rows for {k} × {batch}"
    return NOT_FINITE if not odd and not result.is_meta and not bool(torch.isfinite(result.detach()).all()) else None


def plans(draw, say):
    x = values(draw, shape(draw), say)
    made = method(draw, say)
    plan = made.plan(x, generator=draw.tensor_seed(), **keywords(draw, made, x, say))
    lam = plan.lam
    if not plan.partner.is_meta and not bool(((lam >= 0) & (lam <= 1)).all()):
        return f"{WRONG}: λ outside 0 … 1"
    if plan.layer is not None:
        return judged(mm.plans.run_plan(Network(), plan, x), k=plan.k, batch=len(x), odd=is_large(x))
    found = judged(plan.mix(x), k=plan.k, batch=len(x), odd=is_large(x))
    y = labels(draw, len(x), say)
    target = plan.mix_target(y, draw.some([3], None, 2, "x", 1.5))
    return found or judged(target, k=plan.k, batch=len(x), odd=is_large(y))


def cuts(draw, say):
    x = values(draw, shape(draw), say)
    made = method(draw, say)
    plan = made.plan(x, **keywords(draw, made, x, say))
    step = draw.some([0, slice(0, 1)], 1.5, "x", None, -9, slice(2, 0), (0,), numpy.int64(0), torch.tensor(0))
    steps = number(draw, 1, 2)
    say(f"[{step!r}] split({steps!r})")
    parts = plan.split(steps)
    return None if sum(map(len, parts)) == plan.k and len(plan[step]) else WRONG


def drop_in(draw, say):
    x = values(draw, shape(draw), say)
    made = method(draw, say)
    given = keywords(draw, made, x, say) if draw.odd(0.5) else {}
    y = labels(draw, len(x) if isinstance(x, torch.Tensor) and x.ndim else 1, say)
    mix = mm.Mix(
        made, draw.some([3], None, 0, "x", 1.5), model=draw.some([Network(), None], "x", ThreeChannels()),
        smoothing=draw.some([0.0, 0.1], 2, "x", None, float("nan")), seed=draw.some([None, 1], "x", 1.5),
        uint8=draw.odd(0.1),
    )  # fmt: skip
    mixed, target = mix(x, y, **given)
    k = len(mixed) // len(x)
    found = judged(mixed, k=k, batch=len(x), odd=is_large(x))
    return found or judged(target, k=k, batch=len(x), odd=is_large(y))


def _model_call(draw, say, function, **more):
    x = values(draw, shape(draw), say)
    made = method(draw, say)
    y = labels(draw, len(x) if isinstance(x, torch.Tensor) and x.ndim else 1, say)
    model = draw.some([Network()], ThreeChannels(), None, "x", Network(1), nn.Identity(), lambda x: x.flatten(1)[:, :3])
    given = keywords(draw, made, x, say) if draw.odd(0.4) else {}
    for name in made.traits.needs if draw.odd(0.7) else ():
        given.pop(name, None)
    say(type(model).__name__ + repr(more))
    result = function(
        model, made, x, y, num_classes=draw.some([3, None], 2, "x", 1.5), smoothing=draw.some([0.0, 0.1], "x", 2), **more, **given
    )
    return result, is_large(x) or is_large(y)


def forwards(draw, say):
    out, odd = _model_call(draw, say, mm.mixed_forward)
    criterion = draw.some([mm.losses.soft_cross_entropy, mm.losses.softmax_bce], None, "x", lambda a, b: 1)
    found = judged(out.loss(criterion), odd=odd)
    found = found or judged(out.logits, odd=odd) or judged(out.target, odd=odd)
    return found or (None if out.logits.shape == out.target.shape else WRONG)


def parts(draw, say):
    outputs, odd = _model_call(draw, say, mm.mixed_parts, steps=number(draw, None, 1, 2))
    return next(filter(None, [judged(part.loss(), odd=odd) for part in outputs]), None)


def mixes(draw, say):
    dtype = draw.choice([torch.half, torch.bfloat16, torch.float, torch.double])
    size = (draw.choice([1, 3]), 4)
    z, pair = (torch.randn(size, generator=draw.tensor_seed()).to(dtype) for _ in range(2))
    m = draw.choice([torch.tensor(0.0), torch.tensor(1.0), torch.tensor(0.3), torch.rand(2, 1, 1)])
    say(f"{dtype} m:{_shown(m)}")
    mixed = mm.plans.mix(z, pair, m)
    if m.ndim == 0 and float(m) in (0.0, 1.0):
        return None if torch.equal(mixed, pair if m else z) else WRONG
    return judged(mixed)


def targets(draw, say):
    y = labels(draw, 4, say)
    classes, smoothing = draw.some([3, None], 2, "x", 1.5, 0), draw.some([0.0, 0.1], 2, "x", None)
    return judged(mm.losses.soft_target(y, classes, smoothing), odd=is_large(y))


def paths(draw, say):
    k, alpha = number(draw, 1, 5), number(draw, 0.2, 1.0, 3)
    say(f"{k!r} {alpha!r}")
    k = 7 if k == 10**6 else k
    lam = mm.random.sample_path(
        k,
        alpha,
        rows=number(draw, 1, 4),
        sampler=draw.some(["iid", "stratified", "antithetic", "grid"], "x", None),
        beta=draw.some([None, 2.0], "x", -1),
    )
    return judged(lam, k=k, batch=1) or (None if alpha == 0 or bool((lam.float().diff(dim=0) > 0).all()) else WRONG)


def partners(draw, say):
    batch = number(draw, 1, 2, 9)
    say(repr(batch))
    return judged(mm.random.random_partner(batch, derange=draw.odd(0.5), generator=draw.some([None], "x", 1)), k=batch, batch=1)


def maps(draw, say):
    x = values(draw, shape(draw), say)
    y = labels(draw, len(x) if isinstance(x, torch.Tensor) and x.ndim else 1, say)
    model = draw.some([Network()], ThreeChannels(), None, Network(1), nn.Identity())
    return judged(mm.input_saliency(model, x, y), odd=is_large(x))


def measures(draw, say):
    function = draw.choice([mm.losses.soft_cross_entropy, mm.losses.softmax_bce, mm.losses.mixed_accuracy])
    a, b = values(draw, (4, 3), say, "logits"), labels(draw, 4, say)
    say(function.__name__)
    return judged(function(a, b), odd=is_large(a) or is_large(b))


CALLS = (
    *[plans] * 4,
    *[drop_in] * 3,
    *[forwards] * 4,
    *[parts] * 2,
    cuts,
    mixes,
    targets,
    paths,
    partners,
    maps,
    measures,
)


def campaign(first, count, report=lambda outcome, number: None):
    """How many of the calls ``first … first + count − 1`` ended how."""
    counts = Counter()
    for number in range(first, first + count):
        found = outcome(number)
        counts[found.kind.partition(":")[0]] += 1
        if found.kind not in (RIGHT, REFUSED):
            report(found, number)
    return counts


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(campaign(*map(int, sys.argv[1:3]), lambda found, number: print(number, *found, sep=" | ", flush=True)))
