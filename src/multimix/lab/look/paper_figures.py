"""The paper's Fig. 2 and Fig. 3 from any two pictures: one sample of every method, and four interpolations of three."""

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from ...core.sampling import sample_path, seeded
from ...methods import Method
from .cases import train_ahead, words
from .figure import Row, Sample, figure, samples_figure
from .look import choose_methods
from .steps import ends, steps, takes_lam

LAM = 0.5
INTERPOLATIONS, STEPS = 4, 5
INTERPOLATED = {"mixup": "input mixup", "cutmix": "cutmix", "puzzlemix": "puzzle-mix"}
SEED = 5  # boxes and fields lie where something can be seen of both pictures


def one_sample_each(
    a: Tensor,
    b: Tensor,
    *,
    methods: Sequence[str] = (),
    seed: int = SEED,
    track: Callable[[Sequence[Method]], Iterable[Method]] = iter,
    note: Callable[[str], None] = print,
) -> bytes:
    """Fig. 2 as PNG: ``a`` and ``b [3, H, H]``, and every method's mix of them at λ = ½, with the λ that it realises.

    No ``methods`` means all that can be shown.
    """
    chosen = choose_methods(methods, a.shape[-1], note)
    train_ahead(chosen, note)
    samples = [Sample("A", a), Sample("B", b)]
    for method in track(chosen):
        picture, lam = nearest_sample(method, a, b, seed)
        samples.append(Sample(method.name, picture, lam, words(method).caption))
    return samples_figure(samples)


def nearest_sample(method: Method, a: Tensor, b: Tensor, seed: int) -> tuple[Tensor, float]:
    """``method``'s mix of two pictures at λ = ½ and its realised λ; of the steps of one that takes no λ, the nearest to ½."""
    path = [LAM] if takes_lam(method) else _even_path(STEPS)
    made = steps(method, a, b, path, seed=seed)
    place = int((made.lam - LAM).abs().argmin())
    return made.images[place], float(made.lam[place])


def four_interpolations(a: Tensor, b: Tensor, *, seed: int = SEED) -> bytes:
    """Fig. 3 as PNG: four steps from ``a`` to ``b [3, H, H]`` of input mixup, cutmix and puzzle-mix, a line each."""
    path, rows = _even_path(INTERPOLATIONS), []
    for method in choose_methods(list(INTERPOLATED), a.shape[-1], print):
        first, last = ends(method, a, b)
        made = steps(method, a, b, path, seed=seed)
        rows.append(Row(INTERPOLATED[method.name], first, made, last, words(method).caption))
    return figure(rows)


def _even_path(k: int) -> list[float]:
    return sample_path(k, 1.0, sampler="grid", generator=seeded(SEED)).flatten().tolist()
