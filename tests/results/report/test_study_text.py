from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bermo_ray.results.report.blocks import DataTable
from bermo_ray.results.report.study_text import StudyText, copy_printed

QUESTION = """Is a smaller model as good?

A paper says so,
in Table 1.

    python studies/x.py --paper

And more."""


def test_the_first_line_is_the_title_and_commands_are_no_paragraph() -> None:
    text = StudyText(QUESTION)
    assert text.title == "Is a smaller model as good?"
    assert text.paragraphs == ["A paper says so, in Table 1.", "And more."]
    assert (StudyText().title, StudyText().paragraphs) == ("", [])


def test_a_printed_table_is_kept_without_its_look() -> None:
    table = Table(title="[bold]Means[/bold]")
    table.add_column("task")
    table.add_column("paper:\nlast", justify="right")
    table.add_row("tense", "[red]1.5[/red]")
    table.add_row(Text("[0.1, 0.2]"), "2")
    copied = copy_printed(table)
    expected = DataTable(
        ["task", "paper: last"], [["tense", "1.5"], ["[0.1, 0.2]", "2"]], [False, True], "Means"
    )
    assert copied == expected
    assert copy_printed("[bold]a line[/bold]") == "a line"
    assert "within" in str(copy_printed(Panel("within")))


def test_the_file_gives_back_what_was_written() -> None:
    table = DataTable(["λ"], [["0.5 ± 0.1"]], [True], "t")
    text = StudyText(QUESTION, "python x.py", ["a line", table])
    assert StudyText.from_json(text.to_json()) == text
    assert "λ" in text.to_json()
