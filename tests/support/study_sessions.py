"""A session of a study script without a study: what its report prints and publishes is kept."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from bermo_ray.command_line.session import Session
from bermo_ray.results.arm_text import describe_verdicts
from bermo_ray.results.verdicts import Verdict


@dataclass
class FakeSession:
    """Stands in for :class:`bermo_ray.command_line.session.Session`."""

    options: Any
    folder: Path
    where: str = "here"
    tables: dict[str, Any] = field(default_factory=dict)
    figure_files: list[Path] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(record=True, width=80))

    @property
    def study(self) -> Any:
        return SimpleNamespace(folder=self.folder, name="s", kind="kind")

    show_arms = Session.show_arms

    def print(self, *things: Any) -> None:
        for thing in things:
            self.console.print(thing)

    def publish(self, tables: Any, figure_files: Any = (), verdicts: Any = ()) -> None:
        self.tables, self.figure_files = dict(tables), list(figure_files)
        self.verdicts = list(verdicts)
        self.print(*describe_verdicts(self.verdicts))

    def printed(self) -> str:
        """All that was printed, in lines of 80."""
        return self.console.export_text(clear=False)
