import pytest

from bermo_ray.errors import UserError
from bermo_ray.ray_backend.cluster import Cluster, count_concurrent
from bermo_ray.training.reporter import Resources

HERE = Cluster(cpus=4, gpus=0, most_gpus=0, gpu_node_cpus=0, nodes=1, started_here=True)
CLOUD = Cluster(cpus=0, gpus=0, most_gpus=8, gpu_node_cpus=4, nodes=9, started_here=False)


@pytest.mark.parametrize(
    ("cluster", "resources", "asked", "expected"),
    [
        (HERE, Resources(), None, 4),
        (HERE, Resources(), 3, 3),
        (HERE, Resources(), 9, 4),
        (HERE, Resources(workers=2), None, 2),
        (HERE, Resources(workers=2, cpus_per_worker=2), None, 1),
        (CLOUD, Resources(gpus=True), None, 8),
        (CLOUD, Resources(workers=4, gpus=True, cpus_per_worker=4), None, 2),
        (CLOUD, Resources(gpus=True, gpus_per_worker=0.25), None, 32),
        (CLOUD, Resources(gpus=True, gpus_per_worker=0.1), None, 80),
    ],
)
def test_as_many_as_fit(
    cluster: Cluster, resources: Resources, asked: int | None, expected: int
) -> None:
    assert count_concurrent(cluster, resources, asked) == expected


@pytest.mark.parametrize(
    ("cluster", "resources", "line"),
    [
        (HERE, Resources(gpus=True), "needs 1 GPU(s), this Ray cluster has 0 and may grow to 0"),
        (HERE, Resources(workers=5), "needs 5 CPUs (5 workers × 1), this Ray cluster has 4"),
        (CLOUD, Resources(workers=9, gpus=True), "needs 9 GPU(s)"),
        (CLOUD, Resources(gpus=True, cpus_per_worker=5), "a node with a GPU has 4 CPUs"),
    ],
)
def test_what_can_never_run_is_one_line(cluster: Cluster, resources: Resources, line: str) -> None:
    with pytest.raises(UserError, match="^[^\n]*$") as caught:
        count_concurrent(cluster, resources, None)
    assert line in str(caught.value)
