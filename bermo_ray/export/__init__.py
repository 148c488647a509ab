"""From a trained trial to what a user deploys: a stock checkpoint with its card."""

from bermo_ray.export.card import CARD
from bermo_ray.export.checkpoint import export_trial
from bermo_ray.export.compression import unpack
from bermo_ray.export.measurements import ModelMeasurements, measurement_rows

__all__ = ["CARD", "ModelMeasurements", "export_trial", "measurement_rows", "unpack"]
