"""Pages: self-contained HTML with tables and interactive charts, from plain values."""

from tacit.report.page.charts import Series, bars, heatmap, line, points, surface
from tacit.report.page.markup import plain
from tacit.report.page.parts import (
    Card,
    Cards,
    Chart,
    Code,
    Fold,
    Note,
    Page,
    Part,
    Row,
    Section,
    Table,
    Text,
)

__all__ = [
    "Card",
    "Cards",
    "Chart",
    "Code",
    "Fold",
    "Note",
    "Page",
    "Part",
    "Row",
    "Section",
    "Series",
    "Table",
    "Text",
    "bars",
    "heatmap",
    "line",
    "plain",
    "points",
    "surface",
]
