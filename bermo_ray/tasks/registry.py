"""All tasks by name."""

from bermo_ray.errors import UserError, unknown
from bermo_ray.tasks import embedded, glue, mlm, ner, probing, squad
from bermo_ray.tasks.task import Task
from bermo_ray.tasks.user_data import make_user_task
from bermo_ray.trial import Data

# All but WikiAnn's, of which there is one per language. A plug-in adds its own by register_task.
TASKS: dict[str, Task] = {
    **embedded.tasks(),
    **glue.tasks(),
    **probing.tasks(),
    **ner.tasks(),
    **squad.tasks(),
    **mlm.tasks(),
}


def register_task(task: Task) -> None:
    """Adds a task, so that trials can name it.

    Raises:
        UserError: there is a task of that name.
    """
    if _find_task(task.name):
        raise UserError(f"task.name: got {task.name!r}, expected a name that no other task has")
    TASKS[task.name] = task


def get_task(name: str) -> Task:
    """The task of that name. Tasks whose classes come from their data have none yet: see
    :func:`resolve_task`.

    Raises:
        UserError: there is none; with the nearest names.
    """
    if task := _find_task(name):
        return task
    raise UserError(unknown("task", name, [*TASKS, "wikiann/LANGUAGE"]))


def select_task(data: Data) -> Task:
    """The task of a trial's data: the user's own, or the one of that name; see :func:`get_task`.

    Raises:
        UserError: there is none of that name, or the user's own has the name of another.
    """
    if data.user is None:
        return get_task(data.task)
    if _find_task(data.task):
        raise UserError(f"task: {data.task!r} is a task already; give your own another name")
    return make_user_task(data)


def resolve_task(data: Data) -> Task:
    """The task of a trial's data, with all of its classes."""
    return select_task(data).with_labels(data)


def _find_task(name: str) -> Task | None:
    return TASKS.get(name) or ner.find_wikiann(name)
