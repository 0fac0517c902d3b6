"""The answers of a search, as they are printed."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from diptych.cli.preview import Preview
    from diptych.search.asking.results import RankedResults, Result

Form = Literal["lines", "paths", "null", "json"]


@dataclass
class Printer:
    """Prints answers, one after another.

    form: lines of score, confidence and path; paths alone, a line each or with a zero byte behind each; or JSON
    preview: shows the pictures too
    """

    form: Form
    preview: "Preview | None" = None
    headed: bool = False

    def tell(self, answer: "RankedResults", query: str | None) -> None:
        """One answer; `query` is told with it where there are several."""
        if self.form == "json":
            told = answer.to_json() if query is None else {"query": query, **answer.to_json()}
            print(json.dumps(told, ensure_ascii=False), flush=True)
            return
        if self.form in ("paths", "null"):
            # Several frames of a video are one file.
            for file in dict.fromkeys(result.file for result in answer.results):
                print(file, end="\0" if self.form == "null" else "\n", flush=True)
        else:
            self._lines(answer, query)
        if not answer.results:
            print("nothing found", file=sys.stderr)
        elif answer.matches is False:
            best = max(result.confidence or 0.0 for result in answer.results)
            print(f"note: nothing here seems to match (confidence {best:.2f} at best)", file=sys.stderr)

    def _lines(self, answer: "RankedResults", query: str | None) -> None:
        on_terminal = sys.stdout.isatty()
        if on_terminal and not self.headed and answer.results:
            print("score   sure  path", flush=True)
            self.headed = True
        if query is not None:
            print(f"# {query}")
        for result in answer.results:
            print(_line(result, on_terminal), flush=True)
            if self.preview is not None and result.kind == "picture":
                self.preview.show(result.key)


def _line(result: "Result", on_terminal: bool) -> str:
    """Columns parted by tabs; on a terminal beneath each other."""
    confidence = "-" if result.confidence is None else f"{result.confidence:.2f}"
    more = f"(and {len(result.duplicates)} like it)" if result.duplicates else ""
    written = f"written: {result.written}" if result.written else ""
    rest = [part for part in (result.text, written, more) if part]
    if on_terminal:
        return "  ".join([f"{result.score:<6.3f}{confidence:>6}", result.shown, *rest])
    return "\t".join([f"{result.score:.3f}", confidence, result.shown, *rest])
