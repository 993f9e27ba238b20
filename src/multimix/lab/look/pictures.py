"""Pictures to look at: two that are drawn here (CC0, no file needed), and any image file as a tensor."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps, UnidentifiedImageError
from torch import Tensor

Point = tuple[float, float]

# Drawn this many times larger and scaled down, because Pillow's shapes have hard edges.
SUPERSAMPLING = 4
UNITS = 256

WHITE, INK = "#ffffff", "#2a1d1a"


def cat(size: int = UNITS) -> Tensor:
    """``[3, size, size]`` in 0 … 1: a ginger cat on a roof at night."""
    page = _Page(size)
    _night(page)
    _cat_body(page)
    _cat_head(page)
    return page.tensor()


def dog(size: int = UNITS) -> Tensor:
    """``[3, size, size]`` in 0 … 1: a brown and white dog in a meadow on a sunny day."""
    page = _Page(size)
    _meadow(page)
    _dog_body(page)
    _dog_head(page)
    return page.tensor()


def read_picture(path: str | Path, size: int) -> Tensor:
    """``[3, size, size]`` in 0 … 1: the middle square of an image file, upright, transparent parts over white."""
    try:
        with Image.open(path) as file:
            upright = ImageOps.exif_transpose(file)
            side = min(upright.size)
            left, top = (upright.width - side) // 2, (upright.height - side) // 2
            square = _over_white(upright.crop((left, top, left + side, top + side)))
    except FileNotFoundError:
        raise ValueError(f"there is no picture {str(path)!r}") from None
    except Exception as error:  # on damaged files Pillow's readers raise almost anything, from SyntaxError to struct.error
        raise ValueError(f"{str(path)!r} cannot be read as a picture ({_reason(error)})") from error
    return to_tensor(square.resize((size, size), Image.Resampling.LANCZOS))


def to_tensor(image: Image.Image) -> Tensor:
    """``[3, H, W]`` in 0 … 1 of an RGB image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def to_image(picture: Tensor, side: int) -> Image.Image:
    """An RGB image of ``side`` × ``side`` pixels from ``[3, H, W]`` in 0 … 1."""
    pixels = (picture * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels)
    return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.LANCZOS)


def _over_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Sixteen bits of grey: Pillow's own conversion cuts off at 255 instead of scaling.
        image = Image.fromarray((np.asarray(image) / 257).clip(0, 255).round().astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image).convert("RGB")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or a kind Pillow does not know"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Page:
    """A square sheet on which coordinates run from 0 to 256 whatever its size in pixels."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.scale = size * SUPERSAMPLING / UNITS
        self.image = Image.new("RGB", (size * SUPERSAMPLING,) * 2)

    def tensor(self) -> Tensor:
        return to_tensor(self.image.resize((self.size, self.size), Image.Resampling.LANCZOS))

    def gradient(self, top: str, bottom: str) -> None:
        """The whole sheet, from one colour down to another."""
        ramp = Image.linear_gradient("L").resize(self.image.size)
        self.image = Image.composite(Image.new("RGB", ramp.size, bottom), Image.new("RGB", ramp.size, top), ramp)

    def blob(self, points: Sequence[Point], color: str) -> None:
        """A smooth closed curve through ``points``, filled."""
        self._draw().polygon(self._pixels(_closed_curve(points)), color)

    def polygon(self, points: Sequence[Point], color: str) -> None:
        self._draw().polygon(self._pixels(points), color)

    def ellipse(self, x: float, y: float, rx: float, ry: float, color: str) -> None:
        self._draw().ellipse(self._pixels([(x - rx, y - ry), (x + rx, y + ry)]), color)

    def stroke(self, points: Sequence[Point], color: str, width: float) -> None:
        """A smooth line through ``points`` with round ends."""
        curve = _open_curve(points)
        self._draw().line(self._pixels(curve), color, round(width * self.scale))
        for x, y in curve:  # Pillow leaves cracks between the pieces of a bent line
            self.ellipse(x, y, width / 2, width / 2, color)

    def glow(self, x: float, y: float, rx: float, ry: float, color: str, strength: float, within: Sequence[Point] = ()) -> None:
        """A soft patch of light or shade that fades towards its edge; only inside the curve ``within`` if there is one."""
        patch = Image.new("L", self.image.size)
        ImageDraw.Draw(patch).ellipse(self._pixels([(x - rx, y - ry), (x + rx, y + ry)]), round(255 * strength))
        patch = patch.filter(ImageFilter.GaussianBlur(min(rx, ry) / 3 * self.scale))
        if within:
            inside = Image.new("L", self.image.size)
            ImageDraw.Draw(inside).polygon(self._pixels(_closed_curve(within)), 255)
            patch = ImageChops.multiply(patch, inside)
        self.image.paste(Image.new("RGB", self.image.size, color), mask=patch)

    def _draw(self) -> ImageDraw.ImageDraw:
        return ImageDraw.Draw(self.image)

    def _pixels(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self.scale, y * self.scale) for x, y in points]


def _closed_curve(points: Sequence[Point]) -> list[Point]:
    """Catmull-Rom through all points and back to the first."""
    n = len(points)
    return [p for i in range(n) for p in _segment(points[i - 1], points[i], points[(i + 1) % n], points[(i + 2) % n])]


def _open_curve(points: Sequence[Point]) -> list[Point]:
    """Catmull-Rom from the first point to the last."""
    padded = [points[0], *points, points[-1]]
    pieces = [_segment(*padded[i : i + 4]) for i in range(len(points) - 1)]
    return [*(p for piece in pieces for p in piece), points[-1]]


def _segment(before: Point, start: Point, end: Point, after: Point) -> list[Point]:
    """Sixteen points from ``start`` towards ``end``; the neighbours set the slope at both."""
    t = np.linspace(0, 1, 16, endpoint=False)[:, None]
    a, b, c, d = (np.array(p) for p in (before, start, end, after))
    curve = b + t * (c - a) / 2 + t**2 * (a - 2.5 * b + 2 * c - d / 2) + t**3 * (1.5 * (b - c) + (d - a) / 2)
    return [(float(x), float(y)) for x, y in curve]


def _mirrored(points: Sequence[Point], middle: float) -> list[Point]:
    return [(2 * middle - x, y) for x, y in points]


def _night(page: _Page) -> None:
    page.gradient("#171a4a", "#7a4fa8")
    page.glow(217, 44, 62, 62, "#b7a6f0", 0.5)
    page.ellipse(217, 44, 28, 28, "#ffedb8")
    for x, y, r in ((208, 37, 6), (226, 54, 6.5), (224, 31, 3.2)):
        page.ellipse(x, y, r, r, "#f3d98f")
    for x, y, r in ((22, 30, 1.8), (58, 18, 1.2), (96, 34, 1.6), (140, 16, 1.9), (38, 74, 1.3), (16, 118, 1.7), (238, 112, 1.5)):
        page.ellipse(x, y, r, r, "#fff6d8")
    for x, top, width in ((-4, 176, 44), (36, 196, 34), (176, 184, 40), (214, 166, 46)):
        page.polygon([(x, 256), (x, top), (x + width, top), (x + width, 256)], "#2b2560")
        for i in range(2):
            page.polygon(_window(x + 8 + i * width / 2.4, top + 10), "#ffd76a" if (x + i) % 2 == 0 else "#4a3f8c")
    page.polygon([(0, 256), (0, 232), (256, 232), (256, 256)], "#c2504a")
    for x in range(0, 256, 32):
        page.ellipse(x + 16, 232, 16, 9, "#d8655a")


def _window(x: float, y: float) -> list[Point]:
    return [(x, y), (x + 8, y), (x + 8, y + 11), (x, y + 11)]


def _cat_body(page: _Page) -> None:
    page.stroke([(160, 226), (198, 222), (216, 196), (208, 166), (222, 150)], "#e58a2e", 19)
    page.stroke([(211, 160), (222, 150)], "#fff0dc", 19)
    body = [(118, 140), (160, 164), (176, 214), (166, 244), (118, 248), (70, 244), (60, 214), (76, 164)]
    page.blob(body, "#f29b3f")
    page.glow(166, 214, 26, 44, "#c96a1c", 0.4, within=body)
    page.blob([(118, 160), (142, 182), (138, 224), (118, 238), (98, 224), (94, 182)], "#fff0dc")
    for y in (190, 206, 222):
        page.stroke([(63, y), (78, y + 5)], "#d4711f", 5)
        page.stroke([(173, y), (158, y + 5)], "#d4711f", 5)
    for x in (98, 138):
        page.ellipse(x, 239, 19, 11, "#fff0dc")
        for offset in (-6, 6):
            page.stroke([(x + offset, 240), (x + offset, 246)], "#dcb28a", 2)


def _cat_head(page: _Page) -> None:
    ear, inner = [(62, 110), (58, 42), (74, 46), (106, 78)], [(71, 92), (68, 58), (77, 60), (95, 80)]
    for points, color in ((ear, "#f29b3f"), (inner, "#f7b3a6")):
        page.blob(points, color)
        page.blob(_mirrored(points, 118), color)
    head = [(118, 66), (152, 74), (176, 104), (180, 134), (156, 162), (118, 170), (80, 162), (56, 134), (60, 104), (84, 74)]
    page.blob(head, "#f7a548")
    page.glow(118, 172, 62, 22, "#c96a1c", 0.35, within=head)
    for points in ([(118, 68), (118, 92)], [(102, 71), (105, 88)], [(134, 71), (131, 88)]):
        page.stroke(points, "#d4711f", 6)
    for points in ([(60, 122), (76, 124)], [(61, 136), (76, 135)]):
        page.stroke(points, "#d4711f", 5)
        page.stroke(_mirrored(points, 118), "#d4711f", 5)
    for x in (104, 132):
        page.ellipse(x, 146, 19, 15, "#fff4e4")
    page.ellipse(118, 157, 12, 8, "#fff4e4")
    for x in (92, 144):
        page.ellipse(x, 116, 15.5, 16.5, INK)
        page.ellipse(x, 116, 13.5, 14.5, "#a6dc4f")
        page.ellipse(x, 116, 6, 12.5, INK)
        page.ellipse(x + 4, 110, 3.6, 3.6, WHITE)
        page.ellipse(x - 4, 122, 1.8, 1.8, WHITE)
    page.blob([(109, 134), (118, 132), (127, 134), (118, 143)], "#e8707a")
    page.stroke([(118, 142), (116, 150), (107, 153), (101, 149)], INK, 2.4)
    page.stroke([(118, 142), (120, 150), (129, 153), (135, 149)], INK, 2.4)
    for end, start in (((44, 134), (90, 143)), ((42, 148), (90, 148)), ((48, 161), (92, 153))):
        page.stroke([start, end], WHITE, 1.5)
        page.stroke(_mirrored([start, end], 118), WHITE, 1.5)


def _meadow(page: _Page) -> None:
    page.gradient("#4db4f0", "#dff4ff")
    page.glow(40, 40, 54, 54, "#fffbe0", 0.75)
    page.ellipse(40, 40, 23, 23, "#ffd93b")
    for x, y, s in ((206, 44, 1.0), (96, 24, 0.6)):
        for dx, dy, r in ((-24, 4, 12), (-8, -5, 17), (13, -2, 14), (28, 5, 10)):
            page.ellipse(x + dx * s, y + dy * s, r * s, r * s * 0.85, WHITE)
    page.blob([(-60, 190), (20, 140), (110, 176), (200, 134), (320, 180), (320, 320), (-60, 320)], "#a5d65a")
    page.blob([(-60, 220), (60, 192), (150, 206), (250, 186), (330, 214), (330, 330), (-60, 330)], "#5fb548")
    for i, (x, y) in enumerate(((20, 214), (44, 240), (218, 214), (240, 238), (14, 248), (204, 246))):
        for right, down in ((-3.6, 0), (3.6, 0), (0, -3.6), (0, 3.6)):
            page.ellipse(x + right, y + down, 3.2, 3.2, (WHITE, "#ff8fb8", "#fff07a")[i % 3])
        page.ellipse(x, y, 2.6, 2.6, "#f2a51f")


def _dog_body(page: _Page) -> None:
    page.stroke([(176, 226), (204, 210), (214, 184)], "#8a5230", 15)
    body = [(132, 142), (170, 166), (188, 214), (178, 248), (132, 254), (86, 248), (76, 214), (94, 166)]
    page.blob(body, "#a5673c")
    page.glow(88, 216, 24, 44, "#7a4526", 0.45, within=body)
    page.blob([(132, 160), (160, 186), (158, 230), (132, 248), (106, 230), (104, 186)], "#fffaf2")
    for x in (108, 156):
        page.ellipse(x, 244, 21, 12, "#fffaf2")
        for offset in (-7, 7):
            page.stroke([(x + offset, 244), (x + offset, 252)], "#cbb8a4", 2)
    page.stroke([(92, 171), (112, 181), (132, 184), (152, 181), (172, 171)], "#e23d3d", 11)
    page.ellipse(132, 194, 9, 9, "#ffcf3f")
    page.ellipse(132, 194, 4, 4, "#e0a21c")


def _dog_head(page: _Page) -> None:
    head = [(132, 52), (168, 60), (188, 92), (186, 130), (166, 164), (132, 176), (98, 164), (78, 130), (76, 92), (96, 60)]
    page.blob(head, "#b87444")
    page.blob([(132, 55), (142, 66), (146, 96), (164, 122), (132, 150), (100, 122), (118, 96), (122, 66)], "#fffaf2")
    ear = [(92, 60), (64, 62), (42, 92), (38, 132), (50, 160), (66, 152), (76, 118), (88, 88)]
    for points in (ear, _mirrored(ear, 132)):
        page.blob(points, "#70421f")
    page.glow(52, 128, 10, 26, "#4d2b12", 0.5, within=ear)
    page.glow(212, 128, 10, 26, "#4d2b12", 0.5, within=_mirrored(ear, 132))
    page.blob([(118, 156), (146, 156), (148, 176), (132, 190), (116, 176)], "#f2738a")
    page.stroke([(132, 160), (132, 178)], "#cf4f6a", 2)
    for x in (114, 150):
        page.ellipse(x, 142, 25, 21, "#fffaf2")
    page.ellipse(132, 134, 24, 20, "#fffaf2")
    for x in (104, 160):
        page.ellipse(x, 104, 12, 13.5, INK)
        page.ellipse(x, 105, 9, 10.5, "#5b3217")
        page.ellipse(x, 105, 6, 7.5, INK)
        page.ellipse(x + 4, 99, 3.8, 3.8, WHITE)
        page.ellipse(x - 3, 110, 1.7, 1.7, WHITE)
    page.stroke([(92, 84), (103, 79), (114, 83)], "#70421f", 4.5)
    page.stroke([(172, 84), (161, 79), (150, 83)], "#70421f", 4.5)
    page.blob([(113, 122), (132, 117), (151, 122), (146, 134), (132, 141), (118, 134)], INK)
    page.ellipse(125, 124, 5, 2.6, "#8b7d7a")
    page.stroke([(132, 140), (131, 152), (118, 160), (104, 154)], INK, 2.8)
    page.stroke([(132, 140), (133, 152), (146, 160), (160, 154)], INK, 2.8)
    for x, y in ((104, 140), (112, 148), (101, 149)):
        page.ellipse(x, y, 1.5, 1.5, "#b9a48f")
        page.ellipse(264 - x, y, 1.5, 1.5, "#b9a48f")
