"""Languages in tiers, as an option gives them: ``high=de,fr,pt mid=sw low=am``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bermo_ray.errors import UserError, listed
from bermo_ray.language.dialects import TASK
from bermo_ray.tasks.registry import get_task
from bermo_ray.trial import Data


def parse_tiers(tiers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The tasks of each tier: ``wikiann/LANGUAGE``, or a task of the embedded language by its name.

    >>> parse_tiers(["high=de,fr", "low=entities/dialect60"])
    {'high': ('wikiann/de', 'wikiann/fr'), 'low': ('entities/dialect60',)}

    Raises:
        UserError: a tier is malformed or there twice, or a language is unknown or there twice.
    """
    tasks: dict[str, tuple[str, ...]] = {}
    problems = []
    tier_of: dict[str, str] = {}
    for text in tiers:
        tier, equals, names = text.partition("=")
        languages = names.split(",")
        if not (tier and equals and all(languages)):
            problems.append(
                f"tiers: got {text!r}, expected TIER=LANGUAGE,LANGUAGE, as in high=de,fr"
            )
            continue
        if tier in tasks:
            problems.append(f"tiers: {tier} is given twice; put its languages into one")
        for language in languages:
            if language in tier_of:
                problems.append(
                    f"tiers: {language} is in {tier_of[language]} and in {tier}, expected once"
                    if tier_of[language] != tier
                    else f"tiers: {language} is in {tier} twice, expected once"
                )
            tier_of[language] = tier
        tasks[tier] = tuple(map(_task_name, languages))
    for name in dict.fromkeys(task for names in tasks.values() for task in names):
        try:
            get_task(name)
        except UserError as error:
            problems += [f"tiers: {problem}" for problem in error.problems]
    if problems:
        raise UserError(*problems)
    return tasks


def _task_name(language: str) -> str:
    return language if language.split("/")[0] == TASK else f"wikiann/{language}"


def check_tier_files(tiers: Mapping[str, Sequence[str]], data_dir: str | None) -> None:
    """Whether the rows of every tier's tasks are where they should be.

    Raises:
        UserError: with one line for each tier that lacks some, which says what.
    """
    problems = []
    for tier, tasks in tiers.items():
        lacking = {
            task: reasons[0]
            for task in tasks
            if (reasons := get_task(task).find_problems(Data(task=task, data_dir=data_dir)))
        }
        if lacking:
            names = listed([Path(task).name for task in lacking])
            why = next(iter(lacking.values()))
            problems.append(f"tiers: {tier} lacks the rows of {names}: {why}")
    if problems:
        raise UserError(*problems)
