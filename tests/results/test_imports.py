"""Reading results needs neither torch nor Ray: a notebook on a laptop opens in a moment."""

import subprocess
import sys


def test_results_import_neither_torch_nor_ray_nor_mlflow() -> None:
    code = (
        "import sys; from bermo_ray import results\n"
        "from bermo_ray.results import figures, mixes, text\n"
        "heavy = ('torch', 'ray', 'transformers', 'datasets', 'mlflow')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
