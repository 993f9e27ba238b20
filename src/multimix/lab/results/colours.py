"""The colours of pages and figures, in one place: on a page they follow light and dark."""

# Okabe and Ito's colours, which colour-blind readers can tell apart; with four dashes 24 curves differ.
COLOURS = BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, GREY, SOFT, LINE, SHEET = "#1d1d22", "#6b6b74", "#5c5c66", "#d4d2cb", "#ffffff"

# What a figure's colours are called in page.css.
ON_PAGE = {INK: "currentColor", GREY: "var(--soft)", SOFT: "var(--soft)", LINE: "var(--line)", SHEET: "var(--sheet)"} | {
    colour: f"var(--{name})"
    for colour, name in zip(COLOURS, ("blue", "vermilion", "green", "pink", "orange", "sky"), strict=True)
}
