"""A page of HTML taken apart."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """All elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, **having: str) -> list[dict[str, str]]:
        named = {name.strip("_").replace("_", "-"): value for name, value in having.items()}
        return [a for t, a in self.elements if t == tag and named.items() <= a.items()]
