"""The store that a command reads, which must be there."""

from pathlib import Path

from bermo_ray.errors import UserError
from bermo_ray.tracking.moved import follow_move
from bermo_ray.tracking.store import SQLITE, store_uri


def existing_store(runs: Path, tracking_uri: str | None) -> str:
    """The address of the store of the studies in a folder, or of another one.

    Args:
        runs: Folder of the studies' records.
        tracking_uri: An MLflow server or store, if not the one in ``runs``.

    Raises:
        UserError: there is no such file.
    """
    uri = store_uri(runs, tracking_uri)
    file = Path(uri.removeprefix(SQLITE))
    if uri.startswith(SQLITE) and not file.is_file():
        raise UserError(f"no studies in {file.parent} (no {file.name}); give `runs`")
    if uri == store_uri(runs):
        follow_move(runs)
    return uri
