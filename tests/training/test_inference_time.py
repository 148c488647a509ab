"""Times of inference: what is read, how often, and which models take part. No time is asserted."""

from typing import Any

import pyarrow as pa
import torch

from bermo_ray.training import inference_time
from bermo_ray.training.inference_time import INFERENCE_TIMES, inference_times, measure_encoders
from bermo_ray.trial import Trial


def test_every_depth_reads_the_dev_rows_in_their_order_in_every_round(
    deeper: str, monkeypatch: Any
) -> None:
    read: list[tuple[int, tuple[int, ...]]] = []
    build = inference_time.build_model

    def build_listening(trial: Trial, task: Any) -> Any:
        model = build(trial, task)
        depth = model.stack.depth
        model.network.register_forward_pre_hook(
            lambda _, __, inputs: read.append((depth, tuple(inputs["input_ids"].shape))),
            with_kwargs=True,
        )
        return model

    monkeypatch.setattr(inference_time, "build_model", build_listening)
    trial = Trial().replace(backbone=deeper, data={"dev_rows": 50})
    threads = torch.get_num_threads()
    times = inference_times(trial, [2, 4, 4], rounds=3, most_rows=40)
    assert times.schema == INFERENCE_TIMES
    keys = [(row["layers_left"], row["round"]) for row in times.to_pylist()]
    assert keys == [(left, number) for number in range(3) for left in (4, 2)]
    assert set(times["rows"].to_pylist()) == {40}
    assert all(second > 0 for second in times["seconds"].to_pylist())
    # A round to warm up and three that count; in each a batch of 32 rows and one of 8, both read by
    # both depths in turn.
    assert len(read) == 4 * 2 * 2
    assert [depth for depth, _ in read] == [4, 2] * 8
    assert [shape[0] for _, shape in read[:4]] == [32, 32, 8, 8]
    assert torch.get_num_threads() == threads


def test_an_encoder_is_measured_on_one_task_with_the_depths_of_its_trials(
    deeper: str, monkeypatch: Any
) -> None:
    asked = []

    def note(trial: Trial, depths: Any, **more: Any) -> pa.Table:
        asked.append((trial.backbone, trial.data.task, sorted(depths)))
        return INFERENCE_TIMES.empty_table()

    monkeypatch.setattr(inference_time, "inference_times", note)
    bases = [
        Trial().replace(backbone=name, data={"task": task})
        for name in ("a", "b")
        for task in (("tense", "qqp", "rte") if name == "a" else ("tense", "entities"))
    ]
    table = pa.table({"backbone": ["a", "a", "b", "b"], "layers_left": [6, 3, 4, None]})
    assert measure_encoders(bases, table).num_rows == 0
    assert asked == [("a", "qqp", [3, 6]), ("b", "tense", [4])]
