"""Reports: a study, or two side by side, as one HTML file that opens without a network.

each other, for a terminal or a page.
"""

from bermo_ray.results.report.build import (
    FIGURE_FOLDER,
    REPORT_FILE,
    find_ui,
    make_report,
    write_report,
)
from bermo_ray.results.report.record import NothingToReportError, StudyRecord, read_record
from bermo_ray.results.report.render import save_drawings, write_page
from bermo_ray.results.report.study_comparison import compare_studies
from bermo_ray.results.report.study_text import STUDY_TEXT_FILE, StudyText

__all__ = [
    "FIGURE_FOLDER",
    "REPORT_FILE",
    "STUDY_TEXT_FILE",
    "NothingToReportError",
    "StudyRecord",
    "StudyText",
    "compare_studies",
    "find_ui",
    "make_report",
    "read_record",
    "save_drawings",
    "write_page",
    "write_report",
]
