"""From a trained trial to what a user deploys: a stock checkpoint with its card and figures."""

from bermo_ray.export.card import CARD
from bermo_ray.export.checkpoint import export_trial
from bermo_ray.export.compression import unpack
from bermo_ray.export.figures import Figures, figure_rows

__all__ = ["CARD", "Figures", "export_trial", "figure_rows", "unpack"]
