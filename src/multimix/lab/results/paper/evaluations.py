"""What the paper measures beside the error: boxes, spoilt backgrounds, transfer, calibration, time and gradients."""

from .base import INTERPOLATIONS, METHODS, Column, PaperTable

PUZZLE = ("puzzlemix", 1)
STEPS = range(1, 11)

LOCALIZATION = PaperTable(
    number=4,
    name="localization",
    title="Weakly supervised localisation on ImageNet, ResNet-50",
    about="Objects found by boxes around class activation maps, without training on boxes.",
    columns=(
        Column("IoU > 0.25 (text)", "imagenet", "localization.paper_text", lower=False),
        Column("IoU ≥ 0.5, class (reference)", "imagenet", "localization.reference", lower=False),
        Column("MaxBoxAcc 0.5 (GT-known)", "imagenet", "localization.max_box_gt_known_0.5", lower=False),
        Column("MaxBoxAcc 0.5 (top-1)", "imagenet", "localization.max_box_top1_0.5", lower=False),
    ),
    rows=METHODS,
    notes=(
        "the paper's text counts a box as correct when IoU > 0.25 and does not mention the class; in the co-mixup script it "
        "follows 0.25 is the threshold of the map, and a box is correct when IoU ≥ 0.5 and the class is right. Its baselines of "
        "54 to 55 % fit only the stricter rule, so 0.25 is probably a slip (our inference): both are shown",
        "the script gives boxes that are disjoint in both axes a positive overlap; ours is 0",
    ),
)

CORRUPTION = PaperTable(
    number=5,
    name="corruption",
    title="Top-1 error on ImageNet with spoilt backgrounds, ResNet-50",
    about="The background is replaced by that of another image, or gets Gaussian noise with σ = 0.1.",
    columns=(
        Column("clean", "imagenet", "corruption.clean"),
        Column("background (replaced)", "imagenet", "corruption.background_replaced"),
        Column("background (noise)", "imagenet", "corruption.background_noise"),
    ),
    rows=METHODS,
    notes=(
        "the paper's table sets multi-mix's 39.01 in bold although co-mixup's 38.77 is lower; in which column they stand is not "
        "known here, so neither is shown above",
        "how the paper separates object and background and chooses the other image is not known; here the background is what "
        "lies outside all true boxes",
    ),
)

TRANSFER = PaperTable(
    number=6,
    name="transfer",
    title="Transfer from ImageNet to CUB-200-2011, ResNet-50",
    about="Birds found after each of ten epochs of training the last block and a new head.",
    columns=(
        *(
            Column(
                f"epoch {step} (text)",
                "imagenet",
                f"transfer.transfer_text_{step}",
                lower=False,
            )
            for step in STEPS
        ),
        Column("epoch 10 (reference)", "imagenet", "transfer.transfer_reference_10", lower=False),
        Column("epoch 10 (complement)", "imagenet", "transfer.transfer_complement_10", lower=False),
    ),
    rows=METHODS,
    notes=(
        "at step 2 the paper underlines 67.99 although puzzle-mix has 70.16; whose number 67.99 is, and by which rule, is not "
        "known here",
        "the paper gives the binarisation threshold, 0.75, but not the overlap at which a bird counts as found; text: IoU > "
        "0.25; reference: IoU ≥ 0.5 and the class right; complement: map above 0.25, IoU ≥ 0.5, class ignored, a guess of ours "
        "that comes near 70 %",
    ),
)

CALIBRATION = PaperTable(
    number=8,
    name="calibration",
    title="Expected calibration error (ECE)",
    about="Ten equal bins of confidence, open below and closed above.",
    columns=(
        Column("CIFAR-100 (PreActResNet18)", "cifar100_preact_resnet18", "calibration.ece"),
        Column("CIFAR-100 (WRN16-8)", "cifar100_wrn16_8", "calibration.ece"),
        Column("CIFAR-100 (ResNeXt29-4-24)", "cifar100_resnext29_4_24", "calibration.ece"),
        Column("Tiny-ImageNet (PreActResNet18)", "tiny_imagenet", "calibration.ece"),
    ),
    rows=METHODS,
    notes=(
        'the paper calls the confidence a "logistic output"; it is the largest softmax probability',
        "on which of these the paper measures it is not known here, nor its numbers but that they lie in 1.18 … 5.93 per cent",
    ),
)

TRAINING_TIME = PaperTable(
    number=11,
    name="training-time",
    title="Training time against K, CIFAR-100, PreActResNet18",
    about="Seconds per epoch of puzzle-mix, and how many times as long as with K = 1 it takes.",
    columns=(
        Column("s/epoch (trained)", "training_time", unit="seconds", places=None),
        Column("times K = 1 (measured)", "training_time", "training_time.k{k}", unit="times", of=PUZZLE),
    ),
    rows=INTERPOLATIONS,
    notes=(
        "the paper's time grows more slowly than K, which it puts down to parallel execution: on a CPU core, where nothing runs "
        "in parallel, that need not hold",
        "only ratios compare between machines; runs beside other work are slower; measured: all K in turn with the network that "
        "was trained with K = 1",
    ),
)

GRADIENT_NORM = PaperTable(
    number=12,
    name="gradient-norm",
    title="Squared norm of the gradient against K, CIFAR-100, PreActResNet18",
    about="Mean over the updates of the last epoch, and at the same final weights.",
    columns=(
        Column("‖g‖² (last epoch)", "gradient_norm", unit="squared norm", places=None),
        Column("‖g‖² (same weights)", "gradient_norm", "gradient_norm.k{k}", unit="squared norm", places=None, of=PUZZLE),
    ),
    rows=INTERPOLATIONS,
    notes=(
        "the paper's variance subtracts (E‖g‖)², where the identity needs ‖E g‖²; the squared norm itself is a surrogate for the "
        "variance, exact up to ‖E g‖²; multimix variance measures the variance itself",
        "whether weight decay counts is not said in the paper; here it does not; same weights: those trained with K = 1",
    ),
)
