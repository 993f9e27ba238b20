"""The study's page, made from results alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ...data.shapes import KINDS
from ...results.page import document, heading, paragraph, picture, preformatted
from ..digits.comparison import Compared, Results
from ..digits.page import comparison_table, means_table
from .train import PointSettings


def page(
    results: Results,
    settings: PointSettings,
    all_compared: Sequence[Compared],
    sentences: Sequence[str],
    figures: Mapping[str, bytes],
) -> str:
    """The whole page as HTML."""
    seeds = {seed for outcomes in results.values() for seed in outcomes}
    lead = (
        f"{len(results)} arms × {len(seeds)} seeds on {len(KINDS)} kinds of synthetic bodies of {settings.points} points each: "
        f"{len(KINDS) * settings.per_kind} for training, {len(KINDS) * settings.test_per_kind} for the test, "
        f"{settings.steps} optimiser steps for every arm."
    )
    error, ece = all_compared
    return document(
        "SageMix on clouds of points",
        lead,
        [
            heading("What shows and what does not"),
            *(paragraph(sentence, finding=True) for sentence in sentences),
            heading("What is mixed"),
            picture(
                figures["clouds"],
                "Five bodies as clouds of points, and the steps from a cone to a torus",
                "Above a body of every kind as the network gets it, below the way from one to another at evenly spaced λ: the "
                "colour of a point says how much of it comes from B, the number is the mean over all points, which the label "
                "follows. In this picture all points are equally salient; in training the network says which are.",
            ),
            heading("Test error"),
            picture(
                figures["error"],
                "Test error of every seed, one line per arm, with means and intervals",
                "Each seed has its own bodies, initial weights and order of batches, shared by all arms. The intervals here "
                "contain the differences between seeds; the paired differences below do not.",
            ),
            means_table(results),
            comparison_table(error),
            heading("Calibration"),
            picture(
                figures["ece"],
                "Expected calibration error of every seed, one line per arm, with means and intervals",
                f"Expected calibration error over {settings.bins} bins (a, b], in per cent.",
            ),
            comparison_table(ece),
            heading("How it was done"),
            *(paragraph(words) for words in method_words(settings)),
            preformatted(json.dumps(asdict(settings), indent=1)),
        ],
    )


def method_words(settings: PointSettings) -> list[str]:
    """How the study was made, for the reader who wants to judge it."""
    return [
        f"Bodies ({', '.join(KINDS)}) are stretched along their axes and turned around the vertical at random; points lie evenly "
        f"on the surface, with a noise of {settings.noise:g} of the radius. A small PointNet (8,645 parameters, neither batch "
        "norm nor alignment networks) is trained through multimix.mixed_logits and cross-entropy, every batch mixed, Adam and a "
        "cosine schedule. The test bodies are fresh.",
        f"σ = {settings.sigma:g} here; 2 was published for PointNet, and 0.3, published for another network, was tried on some "
        "of these seeds, too (see the card of SageMix). All else are the library's defaults, and saliency comes from the network "
        "in training. The largest K takes more time for the same steps, so equal steps favour it.",
        "These are made-up bodies and a small network: whether anything carries over to scanned objects is not asked here.",
    ]
