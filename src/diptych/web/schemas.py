"""What goes in and out, as the OpenAPI document tells it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from diptych.scoring.fusion import Fusion
from diptych.search.asking.duplicates import NEAR
from diptych.search.stores.store import Kind

MOST_TOP, MOST_DEPTH, MOST_TERMS, MOST_CHARACTERS = 200, 500, 8, 500
MOST_SENTENCES, MOST_IDS = 64, 200
# The last place that a result can have: lists go on in stretches of `top`, but not for ever.
MOST_PLACES = 2000

Text = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]
Id = Annotated[str, Field(min_length=1, max_length=12000, description="Of an entry or an upload, as answers give it.")]
Weight = Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
ColumnValue = str | int | float


class Strict(BaseModel):
    """What is sent to the server; a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid")


class TextTerm(Strict):
    """A sentence of a query; a negative weight pushes away."""

    text: Text
    weight: Weight = 1.0


class PictureTerm(Strict):
    """An entry or an upload of a query."""

    id: Id
    weight: Weight = 1.0


class SearchFields(Strict):
    """How to search; all of it can be left out."""

    kind: Kind = "picture"
    top: Annotated[int, Field(ge=1, le=MOST_TOP, description="Most results.")] = 24
    offset: Annotated[
        int, Field(ge=0, le=MOST_PLACES - 1, description="Results to leave out at the start, to go on with a list.")
    ] = 0
    where: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=300)]],
        Field(max_length=16, description="Filters such as date>=2024-01-01 or album=holiday; all must fit."),
    ] = []
    path: Annotated[str | None, Field(max_length=300, description="Only paths like this pattern.")] = None
    threshold: Annotated[Finite | None, Field(description="Least score.")] = None
    least_confidence: Annotated[float | None, Field(ge=0, le=1, description="Least confidence.")] = None
    rerank: Annotated[bool, Field(description="Rescore the best with the server's re-ranking model.")] = False
    depth: Annotated[int, Field(ge=1, le=MOST_DEPTH, description="How many are rescored.")] = 100
    fusion: Annotated[Fusion, Field(description="How both scores become one.")] = "sum"
    group: Annotated[
        float | None, Field(gt=0, le=1, description=f"Near duplicates, this close, become one result; {NEAR} is apt.")
    ] = None

    sort: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=100,
            description="Order of what was found: date, path, a column; -date is newest first.",
        ),
    ] = None


class SearchRequest(SearchFields):
    """A query of one or several terms."""

    terms: Annotated[list[TextTerm | PictureTerm], Field(max_length=MOST_TERMS)] = []


class LineRequest(SearchFields):
    """A query as people type it."""

    q: Annotated[str, Field(min_length=1, max_length=2 * MOST_CHARACTERS, description="A sentence, or a + b - c.")]


class Duplicate(BaseModel):
    """Another entry that is nearly the same."""

    id: str
    path: str


class FoundEntry(BaseModel):
    """One entry that was found.

    path: from the folder that was indexed; place_before: its place, from 1, before re-ranking
    moved: places that re-ranking moved it up among all that are found, negative for down
    kind: `video` for a frame of one, which then has its `second`, and the address of the video itself as `media`
    date: when it was taken, or when its file was changed; `dated` says which
    written: what is written in the picture, where the query's words stand in it
    """

    id: str
    path: str
    score: float
    confidence: float | None
    kind: Literal["picture", "sentence", "video"]
    text: str
    metadata: dict[str, ColumnValue]
    retrieval: float | None
    rerank: float | None
    place_before: int | None
    moved: int | None
    duplicates: list[Duplicate]
    picture: str | None
    date: str | None = None
    dated: Literal["taken", "file"] = "file"
    written: str = ""
    second: float | None = None
    media: str | None = None


class SearchAnswer(BaseModel):
    """The results, best first; whether any of them matches, and whether every vector was looked at.

    more: whether the list goes on behind these, at `offset` and `top` together
    left_out: how many in this stretch were not sure enough; best: the greatest confidence, of those left out too
    """

    results: list[FoundEntry]
    timings: dict[str, float]
    matches: bool | None
    exact: bool
    more: bool
    left_out: int
    best: float | None


class RerankRequest(Strict):
    """Entries of one kind to be scored by the re-ranking model."""

    terms: Annotated[list[TextTerm | PictureTerm], Field(max_length=MOST_TERMS)] = []
    query: Annotated[str | None, Field(min_length=1, max_length=2 * MOST_CHARACTERS)] = None
    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)]


class Scored(BaseModel):
    """One entry's score; null where its picture cannot be read any more."""

    id: str
    score: float | None


class RerankAnswer(BaseModel):
    """Scores, best first."""

    model: str
    results: list[Scored]


class Upload(BaseModel):
    """A picture that the server keeps for a while, to be searched with."""

    id: str
    width: int
    height: int


class Chosen(Strict):
    """Entries by their ids."""

    ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)]


class Paths(BaseModel):
    """Where files are on this machine, in the order of the ids."""

    paths: list[str]


class OneEntry(Strict):
    """An entry by its id."""

    id: Id


class Opened(BaseModel):
    """The name of the folder that was opened."""

    folder: str


class EmbedRequest(Strict):
    """Sentences to embed."""

    sentences: Annotated[list[Text], Field(min_length=1, max_length=MOST_SENTENCES)]


class EmbedAnswer(BaseModel):
    """Unit vectors, one for each sentence or picture; of a model that keeps sets, a list of them for each."""

    model: str
    vectors: list[list[float]] | list[list[list[float]]]


class AddSentences(Strict):
    """Sentences to add, by names that they can be replaced under."""

    sentences: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=200)], Text], Field(min_length=1, max_length=MOST_SENTENCES)
    ]


class AddedEntry(BaseModel):
    """An entry that is in the index now."""

    id: str
    path: str


class Added(BaseModel):
    """What was added, and how many entries there are."""

    added: list[AddedEntry]
    entries: int


class Deleted(BaseModel):
    """How many entries went, and how many there are."""

    deleted: int
    entries: int


class NamedArray(BaseModel):
    """An array to be shown: its name, and its values over words, regions or both."""

    name: str
    values: list[Any]


class Explained(BaseModel):
    """Why a picture and a sentence have their score: every array that the model has, and which to show for what."""

    model: str
    sentence: str
    words: list[str]
    score: float
    regions: int
    size: list[int] | None
    grid: list[int] | None
    boxes: list[list[float]] | None
    arrays: dict[str, Any]
    nearest: list[Any]
    looks: NamedArray | None
    answers: NamedArray | None
    whole: NamedArray | None
    strength: NamedArray | None


class Overview(BaseModel):
    """What the server holds."""

    entries: int
    pictures: int
    sentences: int
    model: str
    reranker: str | None
    columns: list[str]
    credits: str | None


class Health(BaseModel):
    """That the server is there."""

    status: Literal["ok"]
    version: str


class Ready(BaseModel):
    """That the server can answer."""

    status: Literal["ready"]
    version: str


class ErrorAnswer(BaseModel):
    """What was wrong, in one sentence."""

    error: str
