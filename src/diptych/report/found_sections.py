"""Examples as in CAMP's figure 4, and the worst failures: queries with what was found for them."""

from html import escape

from diptych.evaluation.result import Evaluation
from diptych.report.axes import number
from diptych.report.parts import Pictures, Section, paragraph
from diptych.report.retrieval import Answer, Query, drawn_queries, find_answers, worst_queries
from diptych.report.subject import Subject

SENTENCES, PICTURES, WORST = 6, 5, 6
FIRST = 5
SIGNS = {"right": ("✓", "right"), "also": ("≈", "true too"), "wrong": ("✗", "wrong")}
LEGEND = "Marked ✓ and green: it belongs to the query. Marked ✗: it belongs to another."
ALSO = " Marked ≈ and dashed: it belongs to another scene, but the sentence happens to be true of this one as well."


def examples_section(subject: Subject, evaluation: Evaluation, pictures: Pictures, seed: int) -> Section:
    """The first five answers of queries that were drawn, not chosen."""
    told = find_answers(subject, evaluation, "t2i", drawn_queries(evaluation, "t2i", SENTENCES, seed), FIRST)
    shown = find_answers(subject, evaluation, "i2t", drawn_queries(evaluation, "i2t", PICTURES, seed), FIRST)
    body = paragraph(
        f"Queries drawn with seed {seed}, not chosen, and searched for among {_searched(subject)}; the first {FIRST} "
        "answers of each. " + legend([*told, *shown])
    )
    body += "<h3>Pictures for a sentence</h3>" + "".join(_sentence_query(q, subject, pictures) for q in told)
    body += "<h3>Sentences for a picture</h3>" + "".join(_picture_query(q, subject, pictures) for q in shown)
    return Section("examples", "Examples", body)


def failures_section(subject: Subject, evaluation: Evaluation, pictures: Pictures) -> Section:
    """The queries whose right answer came last, with what came first."""
    told = find_answers(subject, evaluation, "t2i", worst_queries(evaluation, "t2i", WORST), FIRST - 1)
    shown = find_answers(subject, evaluation, "i2t", worst_queries(evaluation, "i2t", WORST), FIRST)
    if not told and not shown:
        return Section("failures", "The worst failures", paragraph("There is none: every right answer came first."))
    body = paragraph(
        f"The queries whose right answer ranks lowest among {_searched(subject)}, and what came before it. "
        + legend([*told, *shown])
    )
    body += "<h3>Sentences whose picture was not found</h3>"
    body += "".join(_sentence_query(q, subject, pictures, failed=True) for q in told) or paragraph("None.")
    body += "<h3>Pictures whose sentences were not found</h3>"
    body += "".join(_picture_query(q, subject, pictures, failed=True) for q in shown) or paragraph("None.")
    return Section("failures", "The worst failures", body)


def legend(queries: list[Query]) -> str:
    """What the signs mean, as far as they occur."""
    return LEGEND + (ALSO if any(answer.also for query in queries for answer in query.answers) else "")


def _searched(subject: Subject) -> str:
    drawn = f" (drawn from the {subject.whole:,} of the split)" if subject.sampled else ""
    return f"{len(subject.collection):,} pictures{drawn} and {len(subject.captions):,} sentences"


def _rank(query: Query) -> str:
    return "the right one came first" if query.rank == 1 else f"the right one came at rank {number(query.rank)}"


def kind_of(answer: Answer) -> str:
    """`right`, `also` or `wrong`."""
    return "right" if answer.right else "also" if answer.also else "wrong"


def _sentence_query(query: Query, subject: Subject, pictures: Pictures, failed: bool = False) -> str:
    tiles = [_tile(answer, subject, pictures) for answer in query.answers]
    if failed:
        tiles.append(_tile(query.truth, subject, pictures, f"rank {number(query.rank)}"))
    text = escape(subject.captions[query.position])
    return (
        f'<div class="query" data-query="t2i-{query.position}"><p><q>{text}</q> '
        f'<span class="score">— {_rank(query)}</span></p><ol class="tiles">{"".join(tiles)}</ol></div>'
    )


def _tile(answer: Answer, subject: Subject, pictures: Pictures, told: str = "") -> str:
    kind = kind_of(answer)
    sign, word = SIGNS[kind]
    return (
        f'<li class="tile {kind}">{pictures.html(subject.collection.items[answer.position])}'
        f'<div class="told"><span><span class="sign" aria-hidden="true">{sign}</span> {escape(told or word)}</span>'
        f'<span class="score">{answer.score:.3f}</span></div></li>'
    )


def _picture_query(query: Query, subject: Subject, pictures: Pictures, failed: bool = False) -> str:
    item = subject.collection.items[query.position]
    lines = [_found(answer, subject) for answer in query.answers]
    if failed:
        lines.append(_found(query.truth, subject, f"rank {number(query.rank)}: "))
    return (
        f'<div class="query" data-query="i2t-{query.position}"><p>'
        f'<span class="score">{escape(item.id)} — {_rank(query)}</span></p>'
        f'<div class="side"><div class="tile">{pictures.html(item)}</div>'
        f'<ol class="found">{"".join(lines)}</ol></div></div>'
    )


def _found(answer: Answer, subject: Subject, told: str = "") -> str:
    kind = kind_of(answer)
    sign, word = SIGNS[kind]
    return (
        f'<li class="{kind}"><span class="sign" aria-hidden="true">{sign}</span>'
        f'<span class="score">{answer.score:.3f}</span><span><span class="hidden">{word}: </span>'
        f"{escape(told)}{escape(subject.captions[answer.position])}</span></li>"
    )
