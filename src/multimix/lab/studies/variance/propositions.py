"""The paper's two propositions on the gradient's variance, stated as they hold, and what holds for permutations."""

from ...results.html import heading, paragraph, preformatted

# Short lines without columns, since they wrap on a phone.
SYMBOLS = """\
g(pair, λ): the gradient of the loss of one mixed sample
g̃: its mean over B pairs and K values of λ, the gradient of one step
Var[g̃] = E‖g̃ − E g̃‖² = E‖g̃‖² − ‖E g̃‖²: the trace of the covariance matrix
V = Var[g(pair, λ)], over pairs and λ
V_pairs = Var_pairs[E_λ g]: what is left when λ is averaged out
V_λ = Var_λ[E_pairs g]: what is left when pairs are averaged out"""

FIRST = """\
λ_1 … λ_K shared by the batch:
  Var[g̃] = (V + (K−1)·V_pairs + (B−1)·V_λ) / (K·B)
K values of λ for each pair:
  Var[g̃] = (V + (K−1)·V_pairs) / (K·B)"""

SECOND = """\
mixup of K·B pairs, one λ:
  (V + (K·B−1)·V_λ) / (K·B)
mixup of K·B pairs, a λ for each:
  V / (K·B)
multi-mix is at most mixup with one λ, for any K > 1, where
  B ≥ B_0 = V_pairs / V_λ"""

PERMUTATION = """\
E‖g̃‖² = (p₀ + (B−1)·p₁ + p₂ + p₄ + 2(B−2)·(p₃ + p₅) + (B−2)(B−3)·p₆) / B²
the mean product ⟨g, g⟩ of two pairs:
  p₀: i→i with itself, p₁: i→j with itself, p₂: i→i and j→j, p₃: i→i and j→k,
  p₄: i→j and j→i, p₅: i→j and j→k, p₆: i→j and k→l
of which one in K has the same λ on both sides"""

IDENTITY_WORDS = (
    "The variance is E‖g̃‖² − ‖E g̃‖²: the squared norm of the mean gradient is taken off. The paper prints (E‖g̃‖)², the "
    "square of the mean norm, which is never smaller, so that its expression comes out too low; and its definition of the "
    "large batch's variance in Proposition 2 lacks the square. The squared norm E‖g̃‖² itself is a sound surrogate: it differs "
    "from the variance by ‖E g̃‖², which does not depend on K."
)
FIRST_WORDS = (
    "Proposition 1. For pairs drawn independently of each other, and λ drawn independently of them and of each other, the "
    "variance falls with K, towards V_pairs / B and no further:"
)
SECOND_WORDS = (
    "Proposition 2. Multi-mix with B pairs and mixup with K·B pairs put K·B mixed samples through the network. If that mixup "
    "shares a single λ among all its pairs, multi-mix has the lower variance from a certain batch size on:"
)
LIMIT_WORDS = (
    "Proposition 2 rests on the single shared λ. With a λ for each pair, V ≥ V_pairs makes V / (K·B) the smallest of all: "
    "large-batch mixup then never has the higher variance, at any B."
)
PERMUTATION_WORDS = (
    "Both proofs need independent pairs. Training pairs a batch with a permutation of itself, so every sample is in two pairs "
    "and the closed form does not hold. That case has an exact expression too, by the seven ways in which two pairs of a "
    "permutation can meet:"
)


def propositions() -> list[str]:
    """The page's first section."""
    return [
        heading("What the two propositions say, and when"),
        *(preformatted(SYMBOLS), paragraph(IDENTITY_WORDS)),
        *(paragraph(FIRST_WORDS), preformatted(FIRST)),
        *(paragraph(SECOND_WORDS), preformatted(SECOND), paragraph(LIMIT_WORDS)),
        *(paragraph(PERMUTATION_WORDS), preformatted(PERMUTATION)),
    ]
