"""A contact sheet: pictures side by side with their sentences below, for people to look at."""

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from diptych.data.scenes.draw import draw
from diptych.data.scenes.scene import Scene

PAPER, INK = (255, 255, 255), (56, 58, 64)
MARGIN, TEXT = 16, 12


def contact_sheet(
    entries: Sequence[tuple[Scene, Sequence[str]]], columns: int = 5, picture_size: int = 192
) -> Image.Image:
    """One picture of many scenes, each with its sentences under it."""
    font = ImageFont.load_default(TEXT)
    brush = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    blocks = [[_wrap(line, picture_size, font, brush) for line in lines] for _, lines in entries]
    line_height, between = TEXT + 4, 5
    heights = [sum(line_height * len(lines) + between for lines in block) for block in blocks]
    columns = max(1, min(columns, len(entries)))
    rows = [range(start, min(start + columns, len(entries))) for start in range(0, len(entries), columns)]
    height = MARGIN + sum(picture_size + 6 + max(heights[i] for i in row) + MARGIN for row in rows)
    sheet = Image.new("RGB", (MARGIN + columns * (picture_size + MARGIN), height), PAPER)
    brush = ImageDraw.Draw(sheet)
    top = MARGIN
    for row in rows:
        for column, i in enumerate(row):
            left = MARGIN + column * (picture_size + MARGIN)
            sheet.paste(draw(entries[i][0], picture_size), (left, top))
            y = top + picture_size + 6
            for lines in blocks[i]:
                for line in lines:
                    brush.text((left, y), line, fill=INK, font=font)
                    y += line_height
                y += between
        top += picture_size + 6 + max(heights[i] for i in row) + MARGIN
    return sheet


def _wrap(
    text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, brush: ImageDraw.ImageDraw
) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and brush.textlength(longer, font=font) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
